"""What instruments are made of: probes, results and figures, and access to states and gradients."""

from undamped.analysis.core.figures import Layout as Layout
from undamped.analysis.core.figures import Style as Style
from undamped.analysis.core.figures import Trace as Trace
from undamped.analysis.core.probe import InapplicableError as InapplicableError
from undamped.analysis.core.probe import Probe as Probe
from undamped.analysis.core.result import Judgement as Judgement
from undamped.analysis.core.result import Record as Record
from undamped.analysis.core.result import Result as Result
