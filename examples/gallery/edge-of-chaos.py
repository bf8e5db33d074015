"""Order and chaos in deep networks

Mean-field theory: where weights are initialised between order and chaos, signals reach far.
"""

import undamped

result = undamped.analysis.phase_diagram("tanh")
