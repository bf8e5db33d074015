"""Tasks: data, loss, metric, and what a guess would score.

Written by `python -m undamped.stubs`; do not edit.
"""

from undamped.tasks.adding import Adding as Adding
from undamped.tasks.characters import Characters as Characters
from undamped.tasks.copying import Copy as Copy
from undamped.tasks.copying import TransferCopy as TransferCopy
from undamped.tasks.denoise import Denoise as Denoise
from undamped.tasks.densities import PlanarDensity as PlanarDensity
from undamped.tasks.densities import PointCloud as PointCloud
from undamped.tasks.digits import NoisePaddedDigits as NoisePaddedDigits
from undamped.tasks.images import CIFAR10Images as CIFAR10Images
from undamped.tasks.images import MNISTImages as MNISTImages
from undamped.tasks.imdb import IMDB as IMDB
from undamped.tasks.irregular.brusselator import Brusselator as Brusselator
from undamped.tasks.irregular.double_ou import DoubleOU as DoubleOU
from undamped.tasks.irregular.periodic import Periodic as Periodic
from undamped.tasks.lorenz96 import Lorenz96 as Lorenz96
from undamped.tasks.noise_cifar import NoisePaddedCIFAR10 as NoisePaddedCIFAR10
from undamped.tasks.physics.acrobot import Acrobot as Acrobot
from undamped.tasks.physics.bodies import ThreeBody as ThreeBody
from undamped.tasks.physics.bodies import TwoBody as TwoBody
from undamped.tasks.physics.cart_pole import CartPole as CartPole
from undamped.tasks.physics.chain import Chain as Chain
from undamped.tasks.physics.double_pendulum import DoublePendulum as DoublePendulum
from undamped.tasks.physics.henon_heiles import HenonHeiles as HenonHeiles
from undamped.tasks.physics.links import Links as Links
from undamped.tasks.physics.nonseparable import Nonseparable as Nonseparable
from undamped.tasks.physics.pendulum import Pendulum as Pendulum
from undamped.tasks.physics.spring import Spring as Spring
from undamped.tasks.physics.trajectories import Trajectories as Trajectories
from undamped.tasks.physics.vortices import Vortices as Vortices
from undamped.tasks.picture_sequences import PictureSequences as PictureSequences
from undamped.tasks.points import Annuli as Annuli
from undamped.tasks.points import Spirals as Spirals
from undamped.tasks.psmnist import PermutedMNIST as PermutedMNIST
from undamped.tasks.ptb import PennTreebank as PennTreebank
from undamped.tasks.recordings import Recordings as Recordings
from undamped.tasks.relations.comparison import Comparison as Comparison
from undamped.tasks.relations.distribution import DistributionOfN as DistributionOfN
from undamped.tasks.relations.games.task import RelationalGames as RelationalGames
from undamped.tasks.relations.identity_rules import IdentityRules as IdentityRules
from undamped.tasks.relations.identity_rules import IdentityRules4 as IdentityRules4
from undamped.tasks.relations.rmts import RMTS as RMTS
from undamped.tasks.relations.rmts import RMTS3 as RMTS3
from undamped.tasks.relations.same_different import SameDifferent as SameDifferent
from undamped.tasks.relations.same_different import SameDifferent6 as SameDifferent6
from undamped.tasks.series import SeriesTask as SeriesTask
from undamped.tasks.smnist import SequentialMNIST as SequentialMNIST
from undamped.tasks.task import Batch as Batch
from undamped.tasks.task import Chance as Chance
from undamped.tasks.task import Split as Split
from undamped.tasks.task import Task as Task
from undamped.tasks.task import build as build
from undamped.tasks.ucr import ArchiveSeries as ArchiveSeries
from undamped.tasks.vitals import VitalSigns as VitalSigns
