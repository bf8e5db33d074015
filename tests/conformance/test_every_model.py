"""What every model must do that is not a recurrent network, over the registry."""

from functools import partial

import pytest
from member_groups import CELLS, STAMPED
from tiers import few_fast

from undamped._base.registry import models
from undamped.testing import MODEL_CHECKS
from undamped.testing.models import example_inputs, small_model

LIBRARY = [name for name, module in models.index.items() if not module.startswith("undamped.lab.")]
MODELS = [name for name in LIBRARY if name not in (*CELLS, *STAMPED)]


@pytest.mark.parametrize("name", few_fast(MODELS, fast=("node", "hnn", "corelnet", "latent-ode")))
@pytest.mark.parametrize("check", MODEL_CHECKS)
def test_model(name, check):
    model = models[name]
    MODEL_CHECKS[check](partial(small_model, model), example_inputs(model))
