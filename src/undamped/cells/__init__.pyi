"""Recurrent cells: one step in time, one file per paper.

Written by `python -m undamped._base.stubs`; do not edit.
"""

from undamped.cells.antisymmetric import AntisymmetricRNNCell as AntisymmetricRNNCell
from undamped.cells.antisymmetric import GatedAntisymmetricRNNCell as GatedAntisymmetricRNNCell
from undamped.cells.bases.cell import Cell as Cell
from undamped.cells.bases.cell import State as State
from undamped.cells.cornn import CoRNNCell as CoRNNCell
from undamped.cells.dlinoss import DLinOSSCell as DLinOSSCell
from undamped.cells.eurnn import EURNNCell as EURNNCell
from undamped.cells.exprnn import ExpRNNCell as ExpRNNCell
from undamped.cells.fastrnn import FastGRNNCell as FastGRNNCell
from undamped.cells.fastrnn import FastRNNCell as FastRNNCell
from undamped.cells.full_capacity_urnn import FullCapacityURNNCell as FullCapacityURNNCell
from undamped.cells.goru import GORUCell as GORUCell
from undamped.cells.gru import GRUCell as GRUCell
from undamped.cells.incremental import IncrementalRNNCell as IncrementalRNNCell
from undamped.cells.indrnn import DenseIndRNNCell as DenseIndRNNCell
from undamped.cells.indrnn import IndRNNCell as IndRNNCell
from undamped.cells.indrnn import ResidualIndRNNCell as ResidualIndRNNCell
from undamped.cells.irnn import IRNNCell as IRNNCell
from undamped.cells.lem import LEMCell as LEMCell
from undamped.cells.linoss import LinOSSCell as LinOSSCell
from undamped.cells.lipschitz import LipschitzRNNCell as LipschitzRNNCell
from undamped.cells.lru import LRUCell as LRUCell
from undamped.cells.lstm import LSTMCell as LSTMCell
from undamped.cells.memrnn import MemLSTMCell as MemLSTMCell
from undamped.cells.memrnn import MemRNNCell as MemRNNCell
from undamped.cells.mingru import MinGRUCell as MinGRUCell
from undamped.cells.mingru import MinLSTMCell as MinLSTMCell
from undamped.cells.momentum_lstm import AdamLSTMCell as AdamLSTMCell
from undamped.cells.momentum_lstm import MomentumLSTMCell as MomentumLSTMCell
from undamped.cells.momentum_lstm import NesterovLSTMCell as NesterovLSTMCell
from undamped.cells.momentum_lstm import RMSPropLSTMCell as RMSPropLSTMCell
from undamped.cells.momentum_rnn import AdamRNNCell as AdamRNNCell
from undamped.cells.momentum_rnn import MomentumRNNCell as MomentumRNNCell
from undamped.cells.momentum_rnn import NesterovRNNCell as NesterovRNNCell
from undamped.cells.momentum_rnn import RMSPropRNNCell as RMSPropRNNCell
from undamped.cells.nnrnn import NnRNNCell as NnRNNCell
from undamped.cells.ornn import ORNNCell as ORNNCell
from undamped.cells.registry import network as network
from undamped.cells.relrnn import RelLSTMCell as RelLSTMCell
from undamped.cells.relrnn import RelRNNCell as RelRNNCell
from undamped.cells.residual_unicornn import ResidualUnICORNNCell as ResidualUnICORNNCell
from undamped.cells.rnn import RNNCell as RNNCell
from undamped.cells.rnn_orth import RNNOrthCell as RNNOrthCell
from undamped.cells.sab import SABCell as SABCell
from undamped.cells.scornn import ScoRNNCell as ScoRNNCell
from undamped.cells.spectral import SpectralRNNCell as SpectralRNNCell
from undamped.cells.sru import SRUCell as SRUCell
from undamped.cells.unicornn import UnICORNNCell as UnICORNNCell
from undamped.cells.urnn import URNNCell as URNNCell
