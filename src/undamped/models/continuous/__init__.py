"""Continuous-depth models by name: a flow in depth between an input and an answer."""

from undamped.models.continuous.antisymmetric import AntisymmetricNODE, LinearAntisymmetricNODE
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.data_controlled import DataControlledNODE
from undamped.models.continuous.depth_variant import DepthVariantNODE
from undamped.models.continuous.flow import FFJORD
from undamped.models.continuous.images import ConvHBNODE, ConvNODE, ConvSONODE, ImageModel
from undamped.models.continuous.node import NODE
from undamped.models.continuous.odetoode import ODEtoODE
from undamped.models.continuous.residual import ResNet, StableResidualModel
from undamped.models.continuous.rk_net import RKNet
from undamped.models.continuous.second_order import GHBNODE, HBNODE, SONODE

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
