"""Cells unrolled in time, and what is built around them.

Written by `python -m undamped._base.stubs`; do not edit.
"""

from collections.abc import Sequence
from typing import Any, Literal

from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank as OscillatorBank
from undamped.models.continuous.antisymmetric import AntisymmetricNODE as AntisymmetricNODE
from undamped.models.continuous.antisymmetric import LinearAntisymmetricNODE as LinearAntisymmetricNODE
from undamped.models.continuous.data_controlled import DataControlledNODE as DataControlledNODE
from undamped.models.continuous.depth_variant import DepthVariantNODE as DepthVariantNODE
from undamped.models.continuous.flow import FFJORD as FFJORD
from undamped.models.continuous.images import ConvHBNODE as ConvHBNODE
from undamped.models.continuous.images import ConvNODE as ConvNODE
from undamped.models.continuous.images import ConvSONODE as ConvSONODE
from undamped.models.continuous.node import NODE as NODE
from undamped.models.continuous.odetoode import ODEtoODE as ODEtoODE
from undamped.models.continuous.residual import ResNet as ResNet
from undamped.models.continuous.residual import StableResidualModel as StableResidualModel
from undamped.models.continuous.rk_net import RKNet as RKNet
from undamped.models.continuous.second_order import GHBNODE as GHBNODE
from undamped.models.continuous.second_order import HBNODE as HBNODE
from undamped.models.continuous.second_order import SONODE as SONODE
from undamped.models.encoder_decoder import Decoder as Decoder
from undamped.models.encoder_decoder import EncoderDecoder as EncoderDecoder
from undamped.models.irregular.cfc import CfC as CfC
from undamped.models.irregular.decay_rnn import DecayRNN as DecayRNN
from undamped.models.irregular.gru_d import GRUD as GRUD
from undamped.models.irregular.gru_ode_bayes import GRUODEBayes as GRUODEBayes
from undamped.models.irregular.modes_rnn import ModesRNN as ModesRNN
from undamped.models.irregular.neural_cde import NeuralCDE as NeuralCDE
from undamped.models.irregular.ode_rnn import ODERNN as ODERNN
from undamped.models.latent.latent_ode import LatentODE as LatentODE
from undamped.models.latent.ode2vae import ODE2VAE as ODE2VAE
from undamped.models.latent.rnn_vae import RNNVAE as RNNVAE
from undamped.networks.models import build as build
from undamped.networks.oscillators import OscillatorNetwork as OscillatorNetwork
from undamped.models.physics.chnn import CHNN as CHNN
from undamped.models.physics.delan import DeLaN as DeLaN
from undamped.models.physics.hgn import HGN as HGN
from undamped.models.physics.hnn import HNN as HNN
from undamped.models.physics.lnn import LNN as LNN
from undamped.models.physics.nssnn import NSSNN as NSSNN
from undamped.models.physics.plain_ode import PlainODE as PlainODE
from undamped.models.physics.srnn import SRNN as SRNN
from undamped.models.physics.ssinn import SSINN as SSINN
from undamped.models.physics.symoden import SymODEN as SymODEN
from undamped.models.physics.sympnet import SympNet as SympNet
from undamped.models.physics.taylor_net import TaylorNet as TaylorNet
from undamped.models.point_model import PointModel as PointModel
from undamped.networks.recurrent import Recurrent as Recurrent
from undamped.models.relational.corelnet import CoRelNet as CoRelNet
from undamped.models.relational.corelnet_diff import CoRelNetDiff as CoRelNetDiff
from undamped.models.relational.corelnet_mix import CoRelNetMix as CoRelNetMix
from undamped.models.relational.corelnet_t import CoRelNetT as CoRelNetT
from undamped.models.relational.esbn import ESBN as ESBN
from undamped.models.relational.mnm import MNM as MNM
from undamped.models.relational.ntm import NTM as NTM
from undamped.models.relational.picture_rnn import PictureRNN as PictureRNN
from undamped.models.relational.predinet import PrediNet as PrediNet
from undamped.models.relational.relation_net import RelationNet as RelationNet
from undamped.models.relational.transformer import PictureTransformer as PictureTransformer
from undamped.lab.baselines.boosting import SummaryBoosting as SummaryBoosting
from undamped.lab.baselines.combination import Combination as Combination
from undamped.lab.baselines.ets import ETS as ETS
from undamped.lab.baselines.guess import Guess as Guess
from undamped.lab.baselines.minirocket import MiniROCKET as MiniROCKET
from undamped.lab.baselines.multirocket_hydra import MultiROCKETHydra as MultiROCKETHydra
from undamped.lab.baselines.nearest_dtw import NearestDTW as NearestDTW
from undamped.lab.baselines.ridge_lags import RidgeOnLags as RidgeOnLags
from undamped.lab.baselines.seasonal_naive import SeasonalNaive as SeasonalNaive
from undamped.models.sequence_model import SequenceModel as SequenceModel
from undamped.networks.torch_like import TorchLike as TorchLike

class AdamLSTM(Recurrent):
    """Adam LSTM: a velocity divided by the running size of the input, for every gate."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        momentum: float = 0.6,
        step: float = 0.6,
        decay: float = 0.999,
        softening: float = 1e-06,
    ) -> None: ...

class AdamRNN(Recurrent):
    """Adam RNN: a velocity divided by the running size of the input."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        momentum: float = 0.6,
        step: float = 0.6,
        decay: float = 0.999,
        softening: float = 1e-06,
    ) -> None: ...

class AntisymmetricRNN(Recurrent):
    """AntisymmetricRNN: an Euler step of an ODE whose Jacobian has an imaginary spectrum."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        step: float = 0.03,
        diffusion: float = 0.001,
        weight_std: float = 1.0,
    ) -> None: ...

class DLinOSS(Recurrent):
    """D-LinOSS: linear oscillators that learn how fast each of them forgets."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        block: Literal['none', 'layer-norm', 'batch-norm'] = 'none',
        oscillators: int = 0,
        smallest: float = 0.9,
        largest: float = 1.0,
    ) -> None: ...

class DenseIndRNN(Recurrent):
    """Dense IndRNN: every layer reads the input and all layers below."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        gain: float = 2.0,
        steps: int = 1000,
        long_memory: Literal['last', 'all', 'none'] = 'last',
        normalise: bool = False,
    ) -> None: ...

class EURNN(Recurrent):
    """EURNN: layers of rotations in disjoint planes, O(layers · n), from few to full capacity."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        capacity: int | None = None,
        style: Literal['tunable', 'fft'] = 'tunable',
        unitary: bool = True,
    ) -> None: ...

class FastGRNN(Recurrent):
    """FastGRNN: one gate that shares all its matrices with the candidate."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        closed_logit: float = 1.0,
        always_logit: float = -4.0,
    ) -> None: ...

class FastRNN(Recurrent):
    """FastRNN: an Elman step, mixed with the old state by two trained numbers."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        new_logit: float = -3.0,
        old_logit: float = 3.0,
    ) -> None: ...

class FullCapacityURNN(Recurrent):
    """Full-capacity uRNN: W is any unitary matrix, moved along the unitary matrices."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        project_every: int = 100,
    ) -> None: ...

class GORU(Recurrent):
    """GORU: a GRU whose candidate reads the state through an orthogonal matrix."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        initialisation: Literal['random', 'henaff', 'henaff-half', 'cayley', 'identity'] = 'random',
        reset_bias: float = 2.0,
    ) -> None: ...

class GRU(TorchLike):
    """GRU: an LSTM's gates without the separate memory cell."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        bias: bool = True,
        input_std: float | None = None,
        update_bias: float | None = None,
    ) -> None: ...

class GatedAntisymmetricRNN(Recurrent):
    """Gated AntisymmetricRNN: the same Euler step, with a gate that reads the same product."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        step: float = 0.03,
        diffusion: float = 0.001,
        weight_std: float = 1.0,
    ) -> None: ...

class IRNN(TorchLike):
    """IRNN: an Elman RNN with relu, whose recurrent matrix starts as the identity."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        scale: float = 1.0,
        input_std: float = 0.001,
    ) -> None: ...

class IncrementalRNN(Recurrent):
    """Incremental RNN: each step runs an ODE towards its equilibrium and keeps the increment."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        iterations: int = 5,
        step: float = 0.1,
        alpha: float = 1.0,
    ) -> None: ...

class IndRNN(Recurrent):
    """IndRNN: each unit sees only its own past, and layers above mix what units remember."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        block: Literal['none', 'layer-norm', 'batch-norm'] = 'none',
        gain: float = 2.0,
        steps: int = 1000,
        long_memory: Literal['last', 'all', 'none'] = 'last',
        normalise: bool = False,
    ) -> None: ...

class LEM(Recurrent):
    """LEM, long expressive memory: every unit chooses the length of its next step."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        dt: float = 1.0,
    ) -> None: ...

class LRU(Recurrent):
    """LRU: units turn and shrink in the complex plane, each at its own pace."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        block: Literal['none', 'layer-norm', 'batch-norm'] = 'none',
        modes: int = 0,
        smallest: float = 0.0,
        largest: float = 1.0,
        largest_phase: float = 6.283185307179586,
        start: Literal['ring', 'hippo'] = 'ring',
    ) -> None: ...

class LSTM(TorchLike):
    """LSTM: gates decide what a memory cell keeps, takes in and shows."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        h_detach: float = 0.0,
        bias: bool = True,
        proj_size: int = 0,
        input_std: float | None = None,
        forget_bias: float | None = None,
    ) -> None: ...

class LinOSS(Recurrent):
    """LinOSS: a layer of linear, forced oscillators, with one frequency and one step each."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        block: Literal['none', 'layer-norm', 'batch-norm'] = 'none',
        oscillators: int = 0,
        method: Literal['im', 'imex'] = 'im',
    ) -> None: ...

class LipschitzRNN(Recurrent):
    """Lipschitz RNN: an Euler step of ḣ = A h + tanh(W h + V x + b), with A and W nearly skew."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        step: float = 0.03,
        beta: float = 0.75,
        gamma: float = 0.001,
        weight_std: float = 0.1,
    ) -> None: ...

class MemLSTM(Recurrent):
    """MemLSTM: an LSTM that remembers every state it had and attends to all of them."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        attention: Literal['additive', 'dot'] = 'additive',
        mix: Literal['half', 'sum', 'learned'] = 'half',
        input_std: float | None = None,
        forget_bias: float | None = None,
    ) -> None: ...

class MemRNN(Recurrent):
    """MemRNN: an RNN that remembers every state it had and attends to all of them."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        recurrence: str = 'rnn-orth',
        nonlinearity: Literal['tanh', 'relu', 'modrelu'] | None = None,
        attention: Literal['additive', 'dot'] = 'additive',
        mix: Literal['half', 'sum', 'learned'] = 'half',
    ) -> None: ...

class MinGRU(Recurrent):
    """minGRU: a GRU whose gate and candidate read the input alone."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        block: Literal['none', 'layer-norm', 'batch-norm'] = 'none',
    ) -> None: ...

class MinLSTM(Recurrent):
    """minLSTM: an LSTM whose gates read the input alone and add up to one."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        block: Literal['none', 'layer-norm', 'batch-norm'] = 'none',
    ) -> None: ...

class MomentumLSTM(Recurrent):
    """MomentumLSTM: the input of every gate enters through a velocity."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        momentum: float = 0.6,
        step: float = 0.6,
    ) -> None: ...

class MomentumRNN(Recurrent):
    """MomentumRNN: the input enters through a velocity, as in the heavy-ball method."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        momentum: float = 0.6,
        step: float = 0.6,
    ) -> None: ...

class NesterovLSTM(Recurrent):
    """Nesterov LSTM (the paper's SRLSTM): momentum that grows, and starts again now and then."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        step: float = 0.6,
        restart: int = 40,
    ) -> None: ...

class NesterovRNN(Recurrent):
    """Nesterov RNN: momentum that grows from step to step, and starts again now and then."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        step: float = 0.6,
        restart: int = 40,
    ) -> None: ...

class RMSPropLSTM(Recurrent):
    """RMSProp LSTM: the input of every gate enters divided by its running size."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        step: float = 0.6,
        decay: float = 0.9,
        softening: float = 1e-06,
    ) -> None: ...

class RMSPropRNN(Recurrent):
    """RMSProp RNN: the input enters divided by its running size."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        step: float = 0.6,
        decay: float = 0.9,
        softening: float = 1e-06,
    ) -> None: ...

class RNN(TorchLike):
    """Elman RNN: one dense recurrent matrix and a squashing function."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        nonlinearity: Literal['tanh', 'relu'] = 'tanh',
        bias: bool = True,
    ) -> None: ...

class RNNOrth(TorchLike):
    """RNN-orth: an Elman RNN whose recurrent matrix starts as a rotation, and then is free."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        nonlinearity: Literal['tanh', 'relu', 'modrelu'] = 'tanh',
        initialisation: Literal['random', 'henaff', 'henaff-half', 'cayley', 'identity'] = 'henaff',
    ) -> None: ...

class RelLSTM(Recurrent):
    """RelLSTM: an LSTM that attends to its last ν states and to the ρ that mattered most."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        recent: int = 10,
        kept: int = 10,
        screening: Literal['attention', 'share', 'surprise', 'learned'] = 'attention',
        attention: Literal['additive', 'dot'] = 'additive',
        mix: Literal['half', 'sum', 'learned'] = 'half',
        input_std: float | None = None,
        forget_bias: float | None = None,
    ) -> None: ...

class RelRNN(Recurrent):
    """RelRNN: an RNN that attends to its last ν states and to the ρ that mattered most."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        recent: int = 10,
        kept: int = 10,
        screening: Literal['attention', 'share', 'surprise', 'learned'] = 'attention',
        recurrence: str = 'rnn-orth',
        nonlinearity: Literal['tanh', 'relu', 'modrelu'] | None = None,
        attention: Literal['additive', 'dot'] = 'additive',
        mix: Literal['half', 'sum', 'learned'] = 'half',
    ) -> None: ...

class ResidualIndRNN(Recurrent):
    """Residual IndRNN: layers read the sum of the layer below and those S apart under it."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        gain: float = 2.0,
        steps: int = 1000,
        long_memory: Literal['last', 'all', 'none'] = 'last',
        normalise: bool = False,
        skip: int = 2,
        form: Literal['sums', 'blocks'] = 'sums',
    ) -> None: ...

class ResidualUnICORNN(OscillatorNetwork):
    """Residual UnICORNN: each layer also sees the one S layers further down."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dt: float | Sequence[float] = 0.1,
        alpha: float = 1.0,
        train_step: bool = True,
        skip: int = 2,
        gradient: Literal['reversible', 'checkpoint', 'stored'] = 'reversible',
    ) -> None: ...

class SAB(Recurrent):
    """SAB: an LSTM that keeps every k-th state and attends to the few that fit best."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        keep_every: int = 10,
        top: int = 10,
        truncate: int = 10,
        scores: Literal['paper', 'released'] = 'paper',
        input_std: float | None = None,
        forget_bias: float | None = None,
    ) -> None: ...

class SRU(Recurrent):
    """SRU: gates and candidate read the input alone, the recurrence is elementwise."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        block: Literal['none', 'layer-norm', 'batch-norm'] = 'none',
        highway_bias: float = 0.0,
        rescale: bool = True,
    ) -> None: ...

class SpectralRNN(Recurrent):
    """Spectral RNN: W may leave the orthogonal matrices, but only by a margin."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        nonlinearity: Literal['modrelu', 'tanh', 'relu', 'leaky-relu', 'identity'] = 'relu',
        initialisation: Literal['random', 'henaff', 'henaff-half', 'cayley', 'identity'] = 'random',
        margin: float = 0.01,
    ) -> None: ...

class UnICORNN(OscillatorNetwork):
    """UnICORNN: independent undamped oscillators, stepped so that phase volume is kept."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        block: Literal['none', 'layer-norm', 'batch-norm'] = 'none',
        dt: float | Sequence[float] = 0.1,
        alpha: float = 1.0,
        train_step: bool = True,
        gradient: Literal['reversible', 'checkpoint', 'stored'] = 'reversible',
    ) -> None: ...

class coRNN(Recurrent):
    """coRNN: every unit is a damped oscillator, driven by all others."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: float = 0.0,
        dt: float = 0.042,
        gamma: float = 2.7,
        epsilon: float = 4.7,
    ) -> None: ...

class expRNN(Recurrent):
    """expRNN: the recurrent matrix is the exponential of a skew one, so it is always a rotation."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        nonlinearity: Literal['modrelu', 'tanh', 'relu', 'leaky-relu', 'identity'] = 'modrelu',
        initialisation: Literal['random', 'henaff', 'henaff-half', 'cayley', 'identity'] = 'henaff',
        rebase_every: int = 0,
        project_every: int = 100,
    ) -> None: ...

class nnRNN(Recurrent):
    """nnRNN: a recurrent matrix in Schur form, rotations on the diagonal, feed-forward below."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        nonlinearity: Literal['modrelu', 'tanh', 'relu', 'leaky-relu', 'identity'] = 'modrelu',
        initialisation: Literal['random', 'henaff', 'henaff-half', 'cayley', 'identity'] = 'henaff',
        scale_penalty: float = 0.0001,
        lower_decay: float = 1e-06,
    ) -> None: ...

class oRNN(Recurrent):
    """oRNN: the recurrent matrix is a product of m reflections, applied in O(mn)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        nonlinearity: Literal['modrelu', 'tanh', 'relu', 'leaky-relu', 'identity'] = 'leaky-relu',
        reflections: int | None = None,
    ) -> None: ...

class scoRNN(Recurrent):
    """scoRNN: W = (I + A)⁻¹(I − A)D with A skew and fixed signs D, orthogonal for every A."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        nonlinearity: Literal['modrelu', 'tanh', 'relu', 'leaky-relu', 'identity'] = 'modrelu',
        initialisation: Literal['random', 'henaff', 'henaff-half', 'cayley', 'identity'] = 'cayley',
        negative: int | None = None,
    ) -> None: ...

class uRNN(Recurrent):
    """uRNN: complex states, and a unitary matrix of 7n numbers applied in O(n log n)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None: ...
