"""Continuous-depth models by name: a flow in depth between an input and an answer."""

from undamped.networks.continuous.antisymmetric import AntisymmetricNODE, LinearAntisymmetricNODE
from undamped.networks.continuous.base import ContinuousModel
from undamped.networks.continuous.data_controlled import DataControlledNODE
from undamped.networks.continuous.depth_variant import DepthVariantNODE
from undamped.networks.continuous.flow import FFJORD
from undamped.networks.continuous.images import ConvHBNODE, ConvNODE, ConvSONODE, ImageModel
from undamped.networks.continuous.node import NODE
from undamped.networks.continuous.odetoode import ODEtoODE
from undamped.networks.continuous.residual import ResNet, StableResidualModel
from undamped.networks.continuous.rk_net import RKNet
from undamped.networks.continuous.second_order import GHBNODE, HBNODE, SONODE

__all__ = [
    "FFJORD",
    "GHBNODE",
    "HBNODE",
    "NODE",
    "SONODE",
    "AntisymmetricNODE",
    "ContinuousModel",
    "ConvHBNODE",
    "ConvNODE",
    "ConvSONODE",
    "DataControlledNODE",
    "DepthVariantNODE",
    "ImageModel",
    "LinearAntisymmetricNODE",
    "ODEtoODE",
    "RKNet",
    "ResNet",
    "StableResidualModel",
]
