"""The equations of the networks with memory again, plainly, one sample and one state at a time."""

import numpy as np


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _softmax(e):
    e = np.exp(np.asarray(e) - np.max(e))
    return e / e.sum()


def _numbers(module):
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


def _recurrence(cell):
    """Return a function (x, s, carried) → (h, carried) of one sample."""
    p = _numbers(cell.recurrence)
    size = cell.hidden_size
    bias = p["bias_ih"] + p["bias_hh"]
    if "memory" not in cell.state_names:

        def elman(x, s, carried):
            return np.tanh(p["weight_hh"] @ s + p["weight_ih"] @ x + bias), carried

        return elman

    def lstm(x, s, m):
        gates = p["weight_hh"] @ s + p["weight_ih"] @ x + bias
        i, f, g, o = (gates[k * size : (k + 1) * size] for k in range(4))
        m = _sigmoid(f) * m + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(m), m

    return lstm


def _score(a, query, state):
    if "score" in a:
        return a["score"] @ np.tanh(a["query"] @ query + a["key"] @ state)
    return (a["query"] @ query) @ (a["key"] @ state) / np.sqrt(len(query))


def _mix(cell, a, h, c):
    kind = cell.attention.mix
    if kind == "learned":
        return a["mixing"] @ np.concatenate((h, c))
    return h + c if kind == "sum" else (h + c) / 2


def attends_to_all(x, cell):
    """MemRNN, MemLSTM."""
    step, a = _recurrence(cell), _numbers(cell.attention)
    outputs = np.zeros((*x.shape[:2], cell.hidden_size))
    for b in range(x.shape[1]):
        s = m = np.zeros(cell.hidden_size)
        past = []
        for t in range(x.shape[0]):
            h, m = step(x[t, b], s, m)
            past.append(h)
            weights = _softmax([_score(a, s, p) for p in past])
            s = _mix(cell, a, h, sum(w * p for w, p in zip(weights, past, strict=True)))
            outputs[t, b] = h
    return outputs


def attends_to_relevant(x, cell):
    """RelRNN, RelLSTM: algorithm 1, with relevance from the attention received while recent."""
    step, a = _recurrence(cell), _numbers(cell.attention)
    outputs, step_drift = np.zeros((*x.shape[:2], cell.hidden_size)), []
    for b in range(x.shape[1]):
        s = m = np.zeros(cell.hidden_size)
        recent, kept = [], []  # [state, relevance, step]
        usual = np.zeros(x.shape[2])  # the input that is expected
        for t in range(x.shape[0]):
            before = s, m
            h, m = step(x[t, b], s, m)
            relevance = 0.0
            if cell.screening == "surprise":
                relevance = np.sum((h - step(usual, *before)[0]) ** 2)
                usual = usual + (x[t, b] - usual) / cell.recent
            if cell.screening == "learned":
                r = _numbers(cell.relevance)
                relevance = (r["weight"] @ h + r["bias"])[0]
            recent.append([h, relevance, t])
            if len(recent) > cell.recent:
                leaving = recent.pop(0)
                if len(kept) < cell.relevant:
                    kept.append(leaving)
                elif cell.relevant:
                    least = min(range(len(kept)), key=lambda i: kept[i][1])
                    if leaving[1] > kept[least][1]:
                        kept[least] = leaving
            memory = recent + kept
            scores = [_score(a, s, event[0]) for event in memory]
            if cell.screening == "learned":
                gates = [_sigmoid((r["weight"] @ event[0] + r["bias"])[0]) for event in memory]
                scores = [e + np.log(g) for e, g in zip(scores, gates, strict=True)]
            weights = _softmax(scores)
            if cell.screening in ("attention", "share"):
                count = len(memory) if cell.screening == "share" else 1
                for event, weight in zip(recent, weights, strict=False):
                    event[1] += weight * count
            s = _mix(cell, a, h, sum(w * e[0] for w, e in zip(weights, memory, strict=True)))
            outputs[t, b] = h
        step_drift.append(sorted(event[2] for event in kept))
    return outputs, step_drift


def sparse_attentive_backtracking(x, cell):
    """SAB: every k-th state, the top ones by the largest score left out."""
    step, a = _recurrence(cell), _numbers(cell.attention)
    outputs = np.zeros((*x.shape[:2], 2 * cell.hidden_size))
    for b in range(x.shape[1]):
        h = m = np.zeros(cell.hidden_size)
        past = []
        for t in range(x.shape[0]):
            h, m = step(x[t, b], h, m)
            c = np.zeros_like(h)
            if past:
                e = np.array([_score(a, h, p) for p in past])
                limit = cell.top + 1 if cell.scores == "paper" else cell.top
                if len(past) > cell.top:
                    above = np.maximum(e - np.sort(e)[-limit], 0)
                    weights = above / above.sum() if above.sum() else above
                else:
                    weights = _softmax(e)
                c = sum(w * p for w, p in zip(weights, past, strict=True))
            h = h + c
            if (t + 1) % cell.keep_every == 0:
                past.append(h)
            outputs[t, b] = np.concatenate((h, c))
    return outputs
