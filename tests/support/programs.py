"""Ten small programs around torch's recurrent layers, as users write them.

Each class is a model whose `loss()` draws data of its own from torch's generator.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Tagger(nn.Module):
    """Two directions over packed words, one label per word."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 8, 2, bidirectional=True, batch_first=True, dropout=0.1)
        self.head = nn.Linear(16, 4)

    def loss(self):
        lengths = torch.tensor([12, 5, 9, 2])
        words = torch.randint(1, 20, (4, 12))
        words[torch.arange(12) >= lengths.unsqueeze(1)] = 0
        packed = pack_padded_sequence(self.embedding(words), lengths, True, enforce_sorted=False)
        output, _ = pad_packed_sequence(self.lstm(packed)[0], True)
        labels = (words % 4).masked_fill(words == 0, -100)
        return F.cross_entropy(self.head(output).flatten(0, 1), labels.flatten())


class Translator(nn.Module):
    """An encoder, and a decoder with attention over its outputs."""

    def __init__(self):
        super().__init__()
        self.embedding, self.encoder = nn.Embedding(12, 8), nn.GRU(8, 8)
        self.decoder, self.head = nn.GRUCell(16, 8), nn.Linear(16, 12)

    def loss(self):
        source = torch.randint(12, (20, 3))
        memory, h = self.encoder(self.embedding(source))
        h, word, total = h[0], torch.zeros(3, dtype=torch.long), 0.0
        for target in source.flip(0)[:6]:
            weights = torch.softmax((memory * h).sum(-1), 0)
            context = (weights.unsqueeze(-1) * memory).sum(0)
            h = self.decoder(torch.cat((self.embedding(word), context), -1), h)
            total = total + F.cross_entropy(self.head(torch.cat((h, context), -1)), target)
            word = target
        return total / 6


class Synthesiser(nn.Module):
    """A decoder of frames with a prenet under dropout and two cells."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(6, 4, bidirectional=True, batch_first=True)
        self.prenet, self.attention = nn.Linear(5, 6), nn.Linear(8 + 8, 1)
        self.first, self.second = nn.LSTMCell(6 + 8, 8), nn.LSTMCell(8, 8)
        self.frame, self.stop = nn.Linear(8, 5), nn.Linear(8, 1)

    def loss(self):
        memory, _ = self.encoder(torch.randn(3, 10, 6))
        frames, total = torch.randn(7, 3, 5).cumsum(0) * 0.3, 0.0
        one = two = (torch.zeros(3, 8), torch.zeros(3, 8))
        before = torch.zeros(3, 5)
        for frame in frames:
            pre = F.dropout(torch.relu(self.prenet(before)), 0.5)
            query = one[0].unsqueeze(1).expand(-1, 10, -1)
            weights = torch.softmax(self.attention(torch.cat((memory, query), -1)), 1)
            one = self.first(torch.cat((pre, (weights * memory).sum(1)), -1), one)
            two = self.second(one[0], two)
            total = total + F.mse_loss(self.frame(two[0]), frame)
            total = total + 0.01 * self.stop(two[0]).square().mean()
            before = frame
        return total


class Player(nn.Module):
    """Q values with memory: steps of acting, then a sequence of learning."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 8), nn.Linear(8, 3)

    def loss(self):
        observations, state = torch.randn(17, 1, 4), None
        with torch.no_grad():
            for observation in observations[:5]:
                _, state = self.lstm(observation.unsqueeze(0), state)
        values = self.head(self.lstm(observations[5:], state)[0])
        choice = values[:-1, 0, 0]
        target = observations[5:-1, 0, 0] + 0.9 * values[1:, 0].amax(-1).detach()
        return F.smooth_l1_loss(choice, target)


class Forecaster(nn.Module):
    """A GRU over the past, and a rollout of its own predictions."""

    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(1, 12, batch_first=True), nn.Linear(12, 1)

    def loss(self):
        phase = torch.rand(5, 1, 1) * 6
        series = torch.sin(phase + 0.3 * torch.arange(80).view(1, -1, 1))
        output, state = self.gru(series[:, :70])
        value, total = self.head(output[:, -1:]), 0.0
        for t in range(70, 80):
            total = total + F.mse_loss(value, series[:, t : t + 1])
            output, state = self.gru(value, state)
            value = self.head(output)
        return total / 10


class LanguageModel(nn.Module):
    """Tied embeddings, dropout between layers, truncated backpropagation."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(15, 10)
        self.lstm = nn.LSTM(10, 10, 2, dropout=0.2)
        self.head = nn.Linear(10, 15)
        self.head.weight = self.embedding.weight

    def loss(self):
        text, state, total = torch.arange(73).unsqueeze(1).repeat(1, 3) % 15, None, 0.0
        for part in range(0, 72, 24):
            output, state = self.lstm(self.embedding(text[part : part + 24]), state)
            state = tuple(tensor.detach() for tensor in state)
            target = text[part + 1 : part + 25]
            total = total + F.cross_entropy(self.head(output).flatten(0, 1), target.flatten())
        return total / 3


class Sentiment(nn.Module):
    """The last state of packed reviews of very unequal lengths."""

    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(3, 6, bidirectional=True), nn.Linear(12, 2)

    def loss(self):
        lengths = torch.tensor([66, *[4] * 20])
        x = torch.randn(66, 21, 3)
        labels = (x[0, :, 0] > 0).long()
        _, h = self.gru(pack_padded_sequence(x, lengths))
        return F.cross_entropy(self.head(torch.cat((h[0], h[1]), -1)), labels)


class Autoencoder(nn.Module):
    """A variational autoencoder of sequences, with projected states."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(2, 8, proj_size=4, batch_first=True)
        self.latent, self.start = nn.Linear(4, 6), nn.Linear(3, 8)
        self.decoder, self.head = nn.RNN(2, 8, batch_first=True), nn.Linear(8, 2)

    def loss(self):
        x = torch.randn(6, 20, 2).cumsum(1) * 0.2
        mean, log = self.latent(self.encoder(x)[1][0][0]).chunk(2, -1)
        z = mean + (0.5 * log).exp() * torch.randn_like(mean)
        shifted = F.pad(x, (0, 0, 1, 0))[:, :-1]
        output, _ = self.decoder(shifted, torch.tanh(self.start(z)).unsqueeze(0))
        penalty = 0.5 * (mean**2 + log.exp() - log - 1).mean()
        return F.mse_loss(self.head(output), x) + 0.01 * penalty


class Recogniser(nn.Module):
    """Convolutions, two directions, and CTC."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, stride=2, padding=1)
        self.gru = nn.GRU(8, 8, 2, bidirectional=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 6)

    def loss(self):
        x = torch.relu(self.conv(torch.randn(3, 4, 40)))
        logits = self.head(self.norm(self.gru(x.permute(2, 0, 1))[0]))
        targets, lengths = torch.randint(1, 6, (3, 5)), torch.full((3,), 5)
        return F.ctc_loss(logits.log_softmax(-1), targets, torch.full((3,), 20), lengths)


class Twins(nn.Module):
    """One layer for two inputs, with a penalty on the gradient of its answer."""

    def __init__(self):
        super().__init__()
        self.gru, self.scale = nn.GRU(3, 8), nn.Parameter(torch.ones(8))

    def loss(self):
        x = torch.randn(66, 4, 3, requires_grad=True)
        left = self.gru(x)[0][-1] * self.scale
        right = self.gru(x.detach().flip(0))[0][-1] * self.scale
        (slope,) = torch.autograd.grad(left.sum(), x, create_graph=True)
        return (1 - F.cosine_similarity(left, right)).mean() + slope.square().sum()


PROGRAMS = (
    *(Tagger, Translator, Synthesiser, Player, Forecaster),
    *(LanguageModel, Sentiment, Autoencoder, Recogniser, Twins),
)
