"""Recurrent layers, used like `torch.nn.LSTM`, and their cells, by family.

Written by `python -m undamped.lab.catalogue`; do not edit.
"""

from undamped.nn.bases.cell import Cell as Cell
from undamped.nn.bases.cell import State as State
from undamped.nn.bases.updates import penalty as penalty
from undamped.nn.cornn import LEM as LEM
from undamped.nn.cornn import coRNN as coRNN
from undamped.nn.euler import AntisymmetricRNN as AntisymmetricRNN
from undamped.nn.euler import GatedAntisymmetricRNN as GatedAntisymmetricRNN
from undamped.nn.euler import LipschitzRNN as LipschitzRNN
from undamped.nn.fastrnn import FastGRNN as FastGRNN
from undamped.nn.fastrnn import FastRNN as FastRNN
from undamped.nn.fastrnn import IncrementalRNN as IncrementalRNN
from undamped.nn.indrnn import DenseIndRNN as DenseIndRNN
from undamped.nn.indrnn import IndRNN as IndRNN
from undamped.nn.indrnn import ResidualIndRNN as ResidualIndRNN
from undamped.nn.light import Latch as Latch
from undamped.nn.light import MinGRU as MinGRU
from undamped.nn.light import MinLSTM as MinLSTM
from undamped.nn.light import SRU as SRU
from undamped.nn.linoss import DLinOSS as DLinOSS
from undamped.nn.linoss import LinOSS as LinOSS
from undamped.nn.lmu import LMU as LMU
from undamped.nn.lru import LRU as LRU
from undamped.nn.lstm import GRU as GRU
from undamped.nn.lstm import LSTM as LSTM
from undamped.nn.momentum import AdamLSTM as AdamLSTM
from undamped.nn.momentum import AdamRNN as AdamRNN
from undamped.nn.momentum import MomentumLSTM as MomentumLSTM
from undamped.nn.momentum import MomentumRNN as MomentumRNN
from undamped.nn.momentum import NesterovLSTM as NesterovLSTM
from undamped.nn.momentum import NesterovRNN as NesterovRNN
from undamped.nn.momentum import RMSPropLSTM as RMSPropLSTM
from undamped.nn.momentum import RMSPropRNN as RMSPropRNN
from undamped.nn.orthogonal import GORU as GORU
from undamped.nn.orthogonal import expRNN as expRNN
from undamped.nn.orthogonal import oRNN as oRNN
from undamped.nn.orthogonal import scoRNN as scoRNN
from undamped.nn.recurrent import Recurrent as Recurrent
from undamped.nn.relrnn import MemLSTM as MemLSTM
from undamped.nn.relrnn import MemRNN as MemRNN
from undamped.nn.relrnn import RelLSTM as RelLSTM
from undamped.nn.relrnn import RelRNN as RelRNN
from undamped.nn.rnn import IRNN as IRNN
from undamped.nn.rnn import RNN as RNN
from undamped.nn.rnn import RNNOrth as RNNOrth
from undamped.nn.s4d import S4D as S4D
from undamped.nn.sab import SAB as SAB
from undamped.nn.spectral import SpectralRNN as SpectralRNN
from undamped.nn.spectral import nnRNN as nnRNN
from undamped.nn.unicornn import ResidualUnICORNN as ResidualUnICORNN
from undamped.nn.unicornn import UnICORNN as UnICORNN
from undamped.nn.unitary import EURNN as EURNN
from undamped.nn.unitary import FullCapacityURNN as FullCapacityURNN
from undamped.nn.unitary import uRNN as uRNN
