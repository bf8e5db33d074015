"""Networks of pictures: equations, counts of parameters, options, what is refused."""

import copy

import numpy as np
import pytest
import relational_oracles as oracles
import torch
from toy_members import PICTURES

import undamped
import undamped.models.relational.base
from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError, ShapeError, UnknownNameError
from undamped._base.registry import models, tasks
from undamped.models.for_task import check_options, model_for
from undamped.models.relational.base import RelationalModel, decoder

SMALL = {"features": 6}
CASES = {
    "corelnet": (
        oracles.corelnet,
        [
            {"hidden_size": 5},
            {"hidden_size": 5, "matrix": "full", "temperature": 2.5},
            {"hidden_size": 5, "sensory": True, "scaling": "dimension"},
            {"hidden_size": 5, "similarity": "asymmetric", "scaling": "cosine"},
            {"hidden_size": 5, "similarity": "asymmetric-before"},
            {"hidden_size": 5, "rows": "raw", "scaling": "cosine"},
            {"hidden_size": 5, "rows": "raw", "matrix": "full"},
        ],
    ),
    "corelnet-t": (
        oracles.corelnet_t,
        [
            {"hidden_size": 5, "heads": 2, "attention_size": 8, "query_size": 4},
            {"hidden_size": 5, "heads": 2, "attention_size": 8, "layers": 2, "sensory": True},
            {"hidden_size": 5, "heads": 2, "attention_size": 8, "rows": "raw"},
        ],
    ),
    "corelnet-diff": (oracles.corelnet_diff, [{"hidden_size": 5}]),
    "corelnet-mix": (oracles.corelnet_mix, [{"hidden_size": 5, "signature_size": 3}]),
    "esbn": (
        oracles.esbn,
        [
            {"hidden_size": 5, "key_size": 4},
            {"hidden_size": 5, "key_size": 4, "sensory": True, "similarity": "asymmetric"},
        ],
    ),
    "predinet": (
        oracles.predinet,
        [{"hidden_size": 4, "heads": 3, "key_size": 2, "relations": 2}],
    ),
    "relation-net": (oracles.relation_net, [{"hidden_size": 4, "pair_size": 5}]),
    "picture-transformer": (
        oracles.transformer,
        [{"hidden_size": 4, "heads": 2, "feed_forward_size": 5, "layers": 2}],
    ),
    "ntm": (oracles.ntm, [{"hidden_size": 5, "memory_size": 4, "memory_width": 3}]),
    "mnm": (lambda w, u: oracles.mnm(w, u)[0], [{"hidden_size": 5}]),
    "picture-rnn": (oracles.picture_rnn, [{"hidden_size": 5}]),
}
pytestmark = pytest.mark.usefixtures("loops_in_python")
NAMES = [
    n for n in models if isinstance(models[n], type) and issubclass(models[n], RelationalModel)
]
FOR_THE_ORACLE = (
    "matrix", "rows", "sensory", "similarity", "scaling", "temperature", "heads", "layers",
)  # fmt: skip


@pytest.fixture(scope="module")
def loops_in_python():
    """Recurrent heads have their compiled loops tested elsewhere."""
    with undamped.plain_loops():
        yield


def built(name, **options):
    torch.manual_seed(1)
    model = model_for(PICTURES, name, check_options(name, {**SMALL, **options})).double().eval()
    with torch.no_grad():  # biases and gains that start at zero or one would hide a mistake
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def weights(model):
    return {name: value.detach().numpy() for name, value in model.state_dict().items()}


def test_every_network_of_pictures_has_an_oracle():
    assert set(CASES) == set(NAMES)


@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name, (_, all_) in CASES.items() for options in all_]
)
def test_heads_compute_their_equation(name, options):
    model, oracle = built(name, **options), CASES[name][0]
    torch.manual_seed(0)
    codes = torch.randn(5, 3, 6, dtype=torch.float64)
    known = oracle.__kwdefaults__ or {}
    how = {key: options[key] for key in FOR_THE_ORACLE if key in options}
    if name in ("corelnet", "corelnet-t", "esbn", "picture-transformer", "predinet"):
        known = how
    expected = [oracle(weights(model), codes[:, b].numpy(), **known) for b in range(3)]
    np.testing.assert_allclose(
        model.decide(codes).detach().numpy(), expected, rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_equation(name):
    options = CASES[name][1][0]
    model = built(name, **options)
    codes = torch.randn(5, 1, 6, dtype=torch.float64, requires_grad=True)
    (result,) = torch.autograd.grad(model.decide(codes).square().sum(), codes)
    oracle = CASES[name][0]
    how = {key: options[key] for key in FOR_THE_ORACLE if key in options}
    plain, step = codes.detach().numpy()[:, 0], 1e-6
    for place in ((0, 0), (2, 3), (4, 5)):
        sides = []
        for sign in (1, -1):
            moved = plain.copy()
            moved[place] += sign * step
            sides.append((oracle(weights(model), moved, **how) ** 2).sum())
        expected = (sides[0] - sides[1]) / (2 * step)
        assert result[place[0], 0, place[1]].item() == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_the_encoder_and_its_normalisation_compute_their_equations():
    model = built("corelnet", normalisation="segments")
    pictures = torch.rand(5, 2, 3, 9, 8, dtype=torch.float64)
    codes = model.encode(Batch(pictures))
    w = weights(model)
    expected = [[oracles.encoder(w, p.numpy()) for p in row] for row in pictures]
    np.testing.assert_allclose(codes.detach().numpy(), expected, rtol=1e-9, atol=1e-12)
    z = model.normalise(codes).detach().numpy()
    for b in range(2):
        u = codes[:, b].detach().numpy()
        np.testing.assert_allclose(z[:, b], oracles.context_norm(w, u, (2, 3)), atol=1e-9)


def test_normalisation_has_gradients_of_every_order():
    norm = undamped.models.relational.base.TemporalContextNorm(3, (2, 3)).double()
    codes = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    inputs = (codes, *norm.parameters())
    with torch.no_grad():
        norm.gamma.add_(torch.randn(3))

    def run(codes, gamma, beta):
        return torch.func.functional_call(norm, {"gamma": gamma, "beta": beta}, (codes,))

    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)
    rows = torch.func.jacrev(lambda x: norm(x).sum((0, 1)))(codes.detach())
    plain = torch.autograd.functional.jacobian(lambda x: norm(x).sum((0, 1)), codes)
    torch.testing.assert_close(rows, plain)


def test_bytes_count_to_255():
    model = built("corelnet")
    pictures = torch.randint(256, (5, 2, 3, 9, 8), dtype=torch.uint8)
    torch.testing.assert_close(model(pictures), model(pictures.double() / 255))


def test_the_memory_of_mnm_is_trained_and_its_error_is_added():
    model = built("mnm", hidden_size=5)
    pictures = torch.rand(5, 2, 3, 9, 8, dtype=torch.float64)
    model(pictures)
    codes = model.encode(Batch(pictures))
    model.decide(codes)
    errors = [oracles.mnm(weights(model), codes[:, b].detach().numpy())[1] for b in range(2)]
    assert undamped.nn.penalty(model).item() == pytest.approx(np.mean(errors))
    assert "memory.0" in dict(model.named_parameters())


PRINTED = {
    "same-different": (200_418, 1_910_757),
    "rmts": (205_026, 1_910_757),
    "distribution-of-n": (211_684, 1_911_783),
    "identity-rules": (211_684, 1_911_783),
    "same-different-6": (205_026, 1_910_757),
    "rmts-3": (211_170, 1_910_757),
    "identity-rules-4": (223_974, 1_912_809),
}


@pytest.mark.parametrize("task", PRINTED)
def test_counts_of_parameters_are_the_printed_ones(task):
    shape = tasks.build(task).task_shape
    for model, count in zip(("corelnet", "esbn"), PRINTED[task], strict=True):
        built = undamped.build(model, shape=shape)
        assert sum(p.numel() for p in built.parameters()) == count


@pytest.mark.parametrize("name", NAMES)
def test_numbered_pictures_give_the_same_answers_and_gradients(name):
    model = built(name, **CASES[name][1][0])
    numbers = torch.randint(4, (5, 7))
    batch = Batch(numbers, distinct=torch.rand(6, 3, 9, 8, dtype=torch.float64))
    results = []
    for one in (batch, batch.expanded()):
        total = model(one).square().sum() + undamped.nn.penalty(model)
        results.append(torch.autograd.grad(total, list(model.parameters()), allow_unused=True))
    torch.testing.assert_close(*[[g for g in grads if g is not None] for grads in results])


@pytest.mark.parametrize("kind", ["frozen", "random"])
def test_a_frozen_encoder_sees_a_set_once(kind):
    model, seen = built("corelnet", encoder=kind), []
    fresh = copy.deepcopy(model)
    model.encoder.layers.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    pictures = torch.rand(6, 3, 9, 8, dtype=torch.float64)
    for number in range(4):
        generator = torch.Generator().manual_seed(number)
        batch = Batch(torch.randint(3, (5, 7), generator=generator), distinct=pictures)
        torch.testing.assert_close(model(batch), fresh(batch.expanded()))
    assert seen == [3, 6]
    with torch.no_grad():
        pictures.mul_(0.5)
        for weight in model.encoder.parameters():
            weight.add_(0.1)
    torch.testing.assert_close(model(batch), model(batch.expanded()))
    assert not any(p.requires_grad for p in model.encoder.parameters())
    assert not model.encode(batch).requires_grad


@pytest.mark.parametrize("name", ["corelnet", "corelnet-t"])
def test_rounding_is_not_learnt(name):
    """Equal pictures and very different ones have no gradient, and rounding is none either."""
    task = tasks.build("rmts-3")
    torch.manual_seed(0)
    model = undamped.build(name, shape=task.task_shape, hidden_size=16)
    batch = task.batch("train", 0, 96)
    task.loss(model(batch), batch).backward()
    largest = max(p.grad.abs().max() for p in model.encoder.parameters())
    assert largest < 1e-10
    assert max(p.grad.abs().max() for p in model.parameters()) > 1e-4


def test_decoders_start_as_in_the_authors_programs():
    torch.manual_seed(0)
    first, _, last = decoder(200, 300, 100)
    assert not first.bias.any() and not last.bias.any()
    assert first.weight.std().item() == pytest.approx((2 / 200) ** 0.5, rel=0.02)
    assert last.weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.02)


def test_penalties_are_on_weights_or_on_representations():
    batch = Batch(torch.rand(5, 2, 3, 9, 8, dtype=torch.float64))
    model = built("corelnet", l1=0.5)
    model(batch)
    expected = 0.5 * sum(p.abs().sum() for p in model.sparse.parameters())
    torch.testing.assert_close(model.penalty(), expected)
    other = built("esbn", l1=0.5, l1_on="representations", hidden_size=5)
    other(batch)
    torch.testing.assert_close(other.penalty(), 0.5 * other.encode(batch).abs().mean())
    copy.deepcopy(other)  # whose penalty is part of a graph
    assert built("corelnet").penalty() == 0


def test_any_recurrent_network_reads_codes():
    task = tasks.build("same-different")
    batch = task.batch("train", 0, 3)
    with undamped.plain_loops():
        for head in ("unicornn", "gru", "nnrnn"):
            model = undamped.build("picture-rnn", shape=task.task_shape, head=head, hidden_size=4)
            assert model(batch).shape == (3, 2)
        shape = task.task_shape
        model = undamped.models.PictureRNN(
            shape, head="unicornn", hidden_size=4, head_options=["dt=0.3"]
        )
        assert model.network.cell_options["dt"] == 0.3
    with pytest.raises(UnknownNameError, match=r"no option 'dtt'.*Did you mean 'dt'"):
        undamped.models.PictureRNN(shape, head="unicornn", head_options=["dtt=0.3"])
    with pytest.raises(OptionError, match=r"head must be a recurrent network.*got 'node'"):
        undamped.models.PictureRNN(shape, head="node")


def test_without_normalisation_a_recurrent_head_answers_picture_by_picture():
    model = built("picture-rnn", hidden_size=5, normalisation="none")
    pictures = torch.rand(5, 2, 3, 9, 8, dtype=torch.float64)
    state, answer = None, None
    for picture in pictures:
        answer, state = model.step(picture, state)
    torch.testing.assert_close(answer, model(pictures))


@pytest.mark.parametrize("name", ["picture-rnn", "corelnet"])
def test_normalisation_is_no_stream(name):
    model = built(name, hidden_size=5)
    with pytest.raises(OptionError, match="temporal context normalisation, which needs the mean"):
        model.step(torch.rand(2, 3, 9, 8, dtype=torch.float64))
    with pytest.raises(OptionError, match="one that compares all images"):
        built("esbn", hidden_size=5, normalisation="none").step(torch.rand(2, 3, 9, 8))


def shape_with(**changes):
    stored = PICTURES.to_dict()
    return TaskShape.from_dict({**stored, **changes})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: undamped.models.CoRelNet(shape_with(segments=[1])),
            "CoRelNet needs at least two images in a sequence, got ",
        ),
        (
            lambda: undamped.models.CoRelNet(shape_with(segments=[])),
            "needs sequences of equal length",
        ),
        (
            lambda: undamped.models.ESBN(shape_with(picture_shape=[3, 7, 20])),
            "Images must be at least 8 × 8 pixels, got 20 × 7",
        ),
        (
            lambda: undamped.models.ESBN(shape_with(picture_shape=None)),
            "needs a task of images, with a picture_shape",
        ),
        (
            lambda: undamped.models.ESBN(shape_with(readout="every")),
            "makes one prediction for a sequence, and this task needs one at every",
        ),
        (
            lambda: undamped.models.CoRelNet(shape_with(segments=[1, 4]), normalisation="segments"),
            "needs segments of at least two images, got .1, 4.",
        ),
        (
            lambda: undamped.models.CoRelNetT(PICTURES, heads=7),
            "heads must divide attention_size=512, got 7",
        ),
        (
            lambda: undamped.models.PictureTransformer(PICTURES, heads=7),
            "heads must divide features=128, got 7",
        ),
        (
            lambda: undamped.build("corelnet", matrix="causal"),
            "'corelnet' needs the shape of its task, .* got none",
        ),
    ],
)
def test_models_that_cannot_be_built_say_why(make, said):
    with pytest.raises((OptionError, ShapeError), match=said):
        make()


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Batch(torch.rand(1, 2, 3, 9, 8)), "built for 5 images, got 1"),
        (
            Batch(torch.rand(5, 2, 3, 8, 8)),
            r"must be \(time, batch, 3, 9, 8\), .* got \(…, 3, 8, 8\)",
        ),
        (Batch(torch.full((5, 2, 3, 9, 8), torch.nan)), "pixels that are not finite"),
        (Batch(torch.rand(5, 2, 3, 9, 8), lengths=torch.tensor([5, 3])), "must all be the same"),
    ],
)
def test_batches_that_do_not_fit_are_named(batch, said):
    with pytest.raises(ShapeError, match=said):
        built("corelnet")(batch)
    if len(batch.inputs) == 1:
        with pytest.raises(ShapeError, match="at least two images"):
            built("esbn")(batch)
