"""Input, network, readout; and the four uses: many-to-one, many-to-many, one-to-many, both."""

import pytest
import torch

import undamped
from undamped._base.contract import Batch
from undamped._base.errors import OptionError, ShapeError
from undamped.models import Decoder, EncoderDecoder, SequenceModel

LENGTHS = torch.tensor([6, 2, 4])


def test_last_reads_the_true_end():
    model = SequenceModel("gru", 3, 5, hidden_size=8)
    x = torch.randn(6, 3, 3)
    features, _ = model.network(x, None, LENGTHS)
    ends = torch.stack([features[length - 1, i] for i, length in enumerate(LENGTHS)])
    assert torch.allclose(model(x, LENGTHS), model.head(ends), atol=1e-6)


def test_last_of_two_directions_holds_what_each_knows_at_its_end():
    model = SequenceModel("lstm", 3, 5, hidden_size=8, bidirectional=True)
    x = torch.randn(6, 3, 3)
    features, _ = model.network(x)
    known = torch.cat([features[-1, :, :8], features[0, :, 8:]], dim=-1)
    assert torch.allclose(model(x), model.head(known), atol=1e-6)


def test_mean_leaves_padding_out():
    model = SequenceModel("gru", 3, 5, hidden_size=8, readout="mean")
    x = torch.randn(6, 3, 3)
    features, _ = model.network(x, None, LENGTHS)
    means = torch.stack([features[:length, i].mean(0) for i, length in enumerate(LENGTHS)])
    assert torch.allclose(model(x, LENGTHS), model.head(means), atol=1e-6)
    assert torch.allclose(model(x), model.head(model.network(x)[0].mean(0)), atol=1e-6)


def test_every_answers_at_every_step():
    model = SequenceModel("unicornn", 3, 5, hidden_size=8, readout="every")
    assert model(torch.randn(6, 3, 3)).shape == (6, 3, 5)


@pytest.mark.parametrize("embedding", [0, 7])
def test_symbols(embedding):
    model = SequenceModel(
        "gru", 10, 5, input_kind="symbols", embedding_size=embedding, hidden_size=8
    )
    x = torch.randint(0, 10, (6, 3))
    assert model.encode(x).shape == (6, 3, embedding or 10)
    assert model(x).shape == (3, 5)
    for wrong in (x + 10, x - 11, x.float()):
        with pytest.raises(ShapeError, match="integers from 0 to 9"):
            model(wrong)


def test_pixels_are_scaled():
    model = SequenceModel("gru", 3, 5, input_kind="pixels", hidden_size=8)
    x = torch.randint(0, 256, (6, 2, 3), dtype=torch.uint8)
    assert torch.allclose(model.encode(x), x.float() / 255)


def test_contradictions_are_refused():
    with pytest.raises(OptionError, match="which are not embedded"):
        SequenceModel("gru", 3, 5, embedding_size=4, hidden_size=8)
    with pytest.raises(OptionError, match="set by the task"):
        SequenceModel("gru", 3, 5, batch_first=True, hidden_size=8)
    with pytest.raises(OptionError, match="generate"):
        SequenceModel("gru", 3, 5, hidden_size=8).generate(torch.zeros(1, 1).long(), 3)


@pytest.mark.parametrize("name", ["lstm", "unicornn", "rnn"])
def test_a_stream_answers_as_the_whole_sequence_does(name):
    model = SequenceModel(name, 3, 5, readout="every", hidden_size=8, num_layers=2).double()
    x = torch.randn(9, 2, 3).double()
    state, answers = None, []
    for x_t in x:
        answer, state = model.step(x_t, state)
        answers.append(answer)
    assert torch.allclose(torch.stack(answers), model(x), atol=1e-12)


def test_generation_draws_one_symbol_at_a_time_from_its_own_answers():
    torch.manual_seed(0)
    model = SequenceModel("gru", 4, 4, input_kind="symbols", readout="every", hidden_size=8)
    prompt = torch.tensor([[0, 1], [2, 3]])
    drawn = model.generate(prompt, 6, generator=torch.Generator().manual_seed(1))
    repeated = model.generate(prompt, 6, generator=torch.Generator().manual_seed(1))
    assert drawn.shape == (6, 2) and torch.equal(drawn, repeated)
    assert model.training
    # At a temperature near zero every symbol is the likeliest one after all before it.
    text = prompt
    for symbol in model.generate(prompt, 6, temperature=1e-6):
        assert torch.equal(model(text)[-1].argmax(-1), symbol)
        text = torch.cat([text, symbol.unsqueeze(0)])


@pytest.mark.parametrize("name", ["lstm", "unicornn"])
def test_a_stream_carries_the_mean_of_its_outputs(name):
    model = SequenceModel(name, 3, 5, readout="mean", hidden_size=8).double()
    x, state = torch.randn(9, 2, 3).double(), None
    for t, x_t in enumerate(x):
        answer, state = model.step(x_t, state)
        assert torch.allclose(answer, model(x[: t + 1]), atol=1e-12)
    # A state without a mean in it goes on with the network and starts a new mean.
    state = model.run(Batch(x[:4]))[1]
    for x_t in x[4:]:
        answer, state = model.step(x_t, state)
    assert torch.allclose(answer, model(x[4:], state=model.run(Batch(x[:4]))[1]), atol=1e-12)


@pytest.mark.parametrize("name", ["lstm", "gru", "unicornn"])
def test_one_to_many_learns_to_unroll_a_vector(name):
    torch.manual_seed(0)
    decoder = Decoder(name, 3, 5, hidden_size=32, num_layers=2)
    contexts = torch.eye(3)
    targets = torch.tensor([[0, 1, 2], [3, 3, 0], [4, 0, 1], [1, 2, 4]])
    optimizer = torch.optim.Adam(decoder.parameters(), 0.02)
    for _ in range(200):
        optimizer.zero_grad()
        scores = decoder(contexts, targets)
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
    assert torch.equal(decoder.generate(contexts, 4), targets)
    cold = decoder.generate(
        contexts, 4, temperature=0.01, generator=torch.Generator().manual_seed(0)
    )
    assert torch.equal(cold, targets)


@pytest.mark.slow
def test_encoder_decoder_learns_to_turn_a_sequence_around():
    torch.manual_seed(0)
    model = EncoderDecoder("gru", input_size=4, symbols=4, hidden_size=64)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    lengths = torch.tensor([3] * 64)

    def batch():
        x = torch.randint(0, 4, (3, 64))
        padded = torch.cat([torch.nn.functional.one_hot(x, 4).float(), torch.rand(2, 64, 4)])
        return padded, x.flip(0)

    for _ in range(200):
        x, y = batch()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(
            model(x, y, lengths).flatten(0, 1), y.flatten()
        ).backward()
        optimizer.step()
    x, y = batch()
    right = (model.generate(x, 3, lengths=lengths) == y).float().mean()
    assert right > 0.9


def test_a_bidirectional_encoder_feeds_a_decoder_of_one_direction():
    model = EncoderDecoder("lstm", input_size=4, symbols=4, hidden_size=8, bidirectional=True)
    assert model.encoder.bidirectional and not model.decoder.network.bidirectional
    assert model.generate(torch.randn(5, 2, 4), 3).shape == (3, 2)


def test_public_names():
    for name in undamped.__all__:
        assert hasattr(undamped, name)
