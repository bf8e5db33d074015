"""Other devices: every model moves to one, networks run on one, and this machine says what it has.

A device that is not there is stood in for by torch's private one, with tensors that have a device
and no numbers: whatever was left behind on the CPU meets them and is refused.
"""

import copy
import json
import subprocess
import sys

import pytest
import torch
from member_groups import CELLS, STAMPED, WHOLE, small_whole
from torch import nn

import undamped
from undamped._base.errors import OptionError
from undamped._base.options import options_of
from undamped._base.registry import models
from undamped.lab.training.devices import make_fabric
from undamped.lab.training.options import TrainOptions


def build(name):
    torch.manual_seed(0)
    if name in WHOLE:
        return small_whole(name)
    if name in CELLS:
        return undamped.build(name, input_size=3, hidden_size=4, num_layers=2)
    known = options_of(models[name])
    wanted = {"input_size": 9 if "colours" in known else 2, "output_size": 2}
    if name in STAMPED:
        wanted["hidden_size"] = 6
    return undamped.build(name, **{k: v for k, v in wanted.items() if k in known})


def tensors_in(value, depth=0):
    """Find tensors that a module holds beside its parameters and buffers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict) and depth < 3:
        for each in value.values():
            yield from tensors_in(each, depth + 1)
    elif isinstance(value, list | tuple | set) and depth < 3:
        for each in value:
            yield from tensors_in(each, depth + 1)
    elif _ours(value) and depth < 3:
        yield from tensors_in(vars(value), depth + 1)


def _ours(value):
    ours = type(value).__module__.startswith("undamped") and hasattr(value, "__dict__")
    return ours and not isinstance(value, nn.Module)


@pytest.mark.parametrize("name", list(models))
def test_every_model_moves_and_leaves_nothing_behind(name):
    moved = copy.deepcopy(build(name)).to("meta")
    for where, module in moved.named_modules():
        for key, value in vars(module).items():
            left = [t for t in tensors_in(value) if not t.is_meta]
            assert not left, f"{where}.{key} stays on the CPU"


PROGRAM = """
import json, sys, torch, undamped
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("card")
torch.__future__.set_overwrite_module_params_on_conversion(True)
failed = {}
for name in sys.argv[1:]:
    net = undamped.build(name, input_size=3, hidden_size=4, num_layers=1)
    try:
        with FakeTensorMode(), torch.no_grad():
            net._apply(lambda t: torch.empty(t.shape, dtype=t.dtype, device="card"))
            x = torch.randn(5, 2, 3, device="card")
            found = [net(x)[0], net.last(x)[0], net.step(x[0])[0]]
        wrong = [str(t.device) for t in found if t.device.type != "card"]
        if wrong:
            failed[name] = str(wrong)
    except Exception as error:
        failed[name] = repr(error)
print(json.dumps(failed))
"""


@pytest.mark.process
@pytest.mark.skipif(
    not hasattr(
        __import__("torch.utils.backend_registration", fromlist=["x"]),
        "_setup_privateuseone_for_python_backend",
    ),
    reason="torch 2.9 or newer has a device for tests",
)
def test_networks_run_wherever_their_parameters_are():
    # torch's own GRU makes numbers there, and what SAB remembers depends on numbers.
    names = [name for name in CELLS if name not in ("gru", "sab")]
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout) == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("accelerator", ["gpu", "cuda"])
def test_training_on_a_gpu_that_is_not_there_is_one_sentence(accelerator, tmp_path):
    with pytest.raises(
        OptionError, match=r"^This machine does not have .*train\.accelerator"
    ) as caught:
        make_fabric(TrainOptions(accelerator=accelerator), tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", STAMPED)
def test_mixed_precision_keeps_states_of_stamped_networks_whole(name):
    net = build(name)
    before = nn.Linear(2, 2)
    times = torch.linspace(0, 1, 5).unsqueeze(1).expand(5, 3).contiguous()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = net(before(torch.randn(5, 3, 2)), times)
    assert output.dtype == torch.float32
    output.sum().backward()
    assert before.weight.grad is not None
