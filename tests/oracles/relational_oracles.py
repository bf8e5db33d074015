"""The networks of pictures again, plainly, in NumPy: one trial, one head, one pair at a time."""

import math

import numpy as np


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / e.sum()


def linear(w, name, x):
    return w[f"{name}.weight"] @ x + w.get(f"{name}.bias", 0)


def mlp(w, name, x):
    return linear(w, f"{name}.2", relu(linear(w, f"{name}.0", x)))


def lstm(w, name, x, h, c):
    gates = w[f"{name}.weight_ih"] @ x + w[f"{name}.bias_ih"]
    gates = gates + w[f"{name}.weight_hh"] @ h + w[f"{name}.bias_hh"]
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def convolution(image, kernel, bias):
    """Stride two, one pixel of zeros around: (channels, rows, columns)."""
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    size = kernel.shape[-1]
    rows, columns = ((side - size) // 2 + 1 for side in padded.shape[1:])
    out = np.zeros((len(kernel), rows, columns))
    for k in range(len(kernel)):
        for y in range(rows):
            for x in range(columns):
                window = padded[:, 2 * y : 2 * y + size, 2 * x : 2 * x + size]
                out[k, y, x] = (window * kernel[k]).sum() + bias[k]
    return out


def encoder(w, picture):
    for layer in (0, 2, 4):
        picture = relu(
            convolution(
                picture,
                w[f"encoder.layers.{layer}.weight"],
                w[f"encoder.layers.{layer}.bias"],
            )
        )
    hidden = relu(linear(w, "encoder.layers.7", picture.ravel()))
    return relu(linear(w, "encoder.layers.9", hidden))


def context_norm(w, u, segments=()):
    """u: (time, features)."""
    z, start = np.zeros_like(u), 0
    for length in segments or (len(u),):
        part = u[start : start + length]
        spread = np.sqrt(((part - part.mean(0)) ** 2).sum(0) / (length - 1) + 1e-8)
        z[start : start + length] = (part - part.mean(0)) / spread
        start += length
    return w["norm.gamma"] * z + w["norm.beta"]


def similarity_matrix(w, u, similarity="symmetric", scaling="none", temperature=1.0):
    if similarity == "asymmetric-before":
        one = context_norm(w, np.stack([linear(w, "similarity.query", x) for x in u]))
        two = context_norm(w, np.stack([linear(w, "similarity.key", x) for x in u]))
    else:
        one = two = context_norm(w, u)
        if similarity == "asymmetric":
            one = np.stack([linear(w, "similarity.query", x) for x in one])
            two = np.stack([linear(w, "similarity.key", x) for x in two])
    scores = np.zeros((len(u), len(u)))
    for i, a in enumerate(one):
        for j, b in enumerate(two):
            product = a @ b
            if scaling == "cosine":
                product /= np.linalg.norm(a) * np.linalg.norm(b)
            if scaling == "dimension":
                product /= math.sqrt(u.shape[1])
            scores[i, j] = product / temperature
    return scores


def rows_of(scores, matrix, rows):
    R = np.zeros_like(scores)
    for i in range(len(R)):
        last = i + 1 if matrix == "causal" else len(R)
        R[i, :last] = softmax(scores[i, :last]) if rows == "softmax" else scores[i, :last]
    return R


def listed(R, matrix):
    size = len(R)
    return np.array(
        [R[i, j] for i in range(size) for j in range(i + 1 if matrix == "causal" else size)]
    )


def corelnet(w, u, *, matrix="causal", rows="softmax", sensory=False, **how):
    seen = listed(rows_of(similarity_matrix(w, u, **how), matrix, rows), matrix)
    if sensory:
        seen = np.concatenate([seen, context_norm(w, u).ravel()])
    return mlp(w, "decoder", seen)


def layer_norm(w, name, x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def corelnet_t(w, u, *, matrix="causal", rows="softmax", heads=8, layers=1, sensory=False, **how):
    tokens = rows_of(similarity_matrix(w, u, **how), matrix, rows) @ w["positions"]
    if sensory:
        tokens = np.concatenate([tokens, context_norm(w, u)], 1)
    q = w["query"]
    for _ in range(layers):
        asked = np.split(linear(w, "to_query", q), heads)
        keys = [np.split(linear(w, "to_key", t), heads) for t in tokens]
        values = [np.split(linear(w, "to_value", t), heads) for t in tokens]
        result = []
        for h in range(heads):
            a = softmax(np.array([asked[h] @ k[h] for k in keys]) / math.sqrt(len(asked[h])))
            result.append(sum(a[i] * values[i][h] for i in range(len(tokens))))
        q = layer_norm(w, "norms.0", q + linear(w, "to_output", np.concatenate(result)))
        q = layer_norm(w, "norms.1", q + mlp(w, "feed_forward", q))
    return mlp(w, "decoder", q)


def difference_matrix(w, u):
    s = [float(w["size.weight"][0] @ z) for z in context_norm(w, u)]
    return np.array([[a - b for b in s] for a in s])


def corelnet_diff(w, u):
    return mlp(w, "decoder", difference_matrix(w, u).ravel())


def corelnet_mix(w, u, *, matrix="causal", **how):
    """Without noise, as in a test: the rule with the better signature."""
    query = linear(w, "query", context_norm(w, u).ravel())
    scores = [query @ k for k in w["signatures"]]
    R = rows_of(similarity_matrix(w, u, **how), matrix, "softmax")
    choice = R if scores[0] > scores[1] else difference_matrix(w, u)
    return mlp(w, "decoder", choice.ravel())


def esbn(w, u, *, sensory=False, **how):
    """Keys and pictures side by side in a list; the last picture is zero."""
    scores, z = similarity_matrix(w, u, **how), context_norm(w, u)
    size, width = len(w["key.bias"]), len(w["lstm.bias_ih"]) // 4
    h, c, keys = np.zeros(width), np.zeros(width), []
    read = np.zeros(w["lstm.weight_ih"].shape[1])
    for t in range(len(u)):
        h, c = lstm(w, "lstm", read, h, c)
        result = np.zeros(size + 1)
        if t:
            a = softmax(scores[t, :t])
            for i in range(t):
                confidence = sigmoid(w["gain"] * scores[t, i] + w["bias"])
                result += a[i] * np.concatenate([keys[i], confidence])
            result *= sigmoid(linear(w, "gate", h))
        keys.append(relu(linear(w, "key", h)))
        read = np.concatenate([result, z[t]]) if sensory else result
    h, c = lstm(w, "lstm", read, h, c)
    return linear(w, "head", h)


def predinet(w, u, *, heads):
    z = np.concatenate([context_norm(w, u), np.arange(len(u))[:, None]], 1)
    keys = [linear(w, "key", x) for x in z]
    queries = [np.split(linear(w, f"queries.{k}", z.ravel()), heads) for k in range(2)]
    output = []
    for h in range(heads):
        E = []
        for k in range(2):
            a = softmax(np.array([queries[k][h] @ key for key in keys]))
            E.append(sum(a[i] * z[i] for i in range(len(z))))
        D = linear(w, "relation", E[0]) - linear(w, "relation", E[1])
        output += [D, E[0][-1:], E[1][-1:]]
    return linear(w, "head", relu(linear(w, "hidden", np.concatenate(output))))


def relation_net(w, u):
    z = np.concatenate([context_norm(w, u), np.arange(len(u))[:, None]], 1)
    total = 0
    for a in z:
        for b in z:
            total = total + relu(
                linear(w, "pair_out", relu(linear(w, "pair", np.concatenate([a, b]))))
            )
    return linear(w, "head", relu(linear(w, "hidden", total)))


def transformer(w, u, *, heads, layers=1):
    x, size = context_norm(w, u), u.shape[1]
    for t in range(len(x)):
        for k in range(size):
            angle = t / 10_000 ** ((k - k % 2) / size)
            x[t, k] += math.sin(angle) if k % 2 == 0 else math.cos(angle)
    for number in range(layers):
        n = f"transformer.layers.{number}"
        projected = [
            np.split(w[f"{n}.self_attn.in_proj_weight"] @ row + w[f"{n}.self_attn.in_proj_bias"], 3)
            for row in x
        ]
        mixed = []
        for i in range(len(x)):
            result = []
            for h in range(heads):
                part = slice(h * size // heads, (h + 1) * size // heads)
                scores = [projected[i][0][part] @ p[1][part] for p in projected]
                a = softmax(np.array(scores) / math.sqrt(size / heads))
                result.append(sum(a[j] * projected[j][2][part] for j in range(len(x))))
            mixed.append(linear(w, f"{n}.self_attn.out_proj", np.concatenate(result)))
        x = np.stack([layer_norm(w, f"{n}.norm1", a + b) for a, b in zip(x, mixed, strict=True)])
        output = [linear(w, f"{n}.linear2", relu(linear(w, f"{n}.linear1", a))) for a in x]
        x = np.stack([layer_norm(w, f"{n}.norm2", a + b) for a, b in zip(x, output, strict=True)])
    mean = np.mean([layer_norm(w, "transformer.norm", a) for a in x], 0)
    return linear(w, "head", relu(linear(w, "hidden", mean)))


def address(w, name, h, M, before):
    key = np.tanh(linear(w, f"{name}.key", h))
    alike = [key @ m / (np.linalg.norm(key) * np.linalg.norm(m)) for m in M]
    a = softmax(softplus(linear(w, f"{name}.strength", h)) * np.array(alike))
    if before is not None:
        g = sigmoid(linear(w, f"{name}.gate", h))
        a = g * a + (1 - g) * before
    s, rows = softmax(linear(w, f"{name}.shift", h)), len(M)
    a = np.array(
        [sum(s[k] * a[(i - by) % rows] for k, by in enumerate((-1, 0, 1))) for i in range(rows)]
    )
    a = a ** (1 + softplus(linear(w, f"{name}.sharpness", h)))
    return a / a.sum()


def ntm(w, u):
    z, M = context_norm(w, u), w["memory"].copy()
    width = len(w["lstm.bias_ih"]) // 4
    h, c, r = np.zeros(width), np.zeros(width), np.zeros(M.shape[1])
    looked = wrote = None
    for t in range(len(z)):
        h, c = lstm(w, "lstm", np.concatenate([z[t], r]), h, c)
        if t:
            looked = address(w, "read", h, M, looked)
            r = looked @ M
        wrote = address(w, "write", h, M, wrote)
        erase, add = sigmoid(linear(w, "erase", h)), np.tanh(linear(w, "add", h))
        for i in range(len(M)):
            M[i] = M[i] * (1 - wrote[i] * erase) + wrote[i] * add
    h, c = lstm(w, "lstm", np.concatenate([0 * z[0], r]), h, c)
    return linear(w, "head", h)


def mnm(w, u):
    """Return the answer and the reconstruction error that training makes small."""
    z = context_norm(w, u)
    M = [w[f"memory.{k}"].copy() for k in range(3)]
    d = len(M[0])

    def recall(key):
        first = np.tanh(M[0] @ key)
        second = np.tanh(M[1] @ first)
        return [first, second, M[2] @ second]

    h, c, r, missed = np.zeros(d), np.zeros(d), np.zeros(d), 0.0
    for code in [*z, 0 * z[0]]:
        h, c = lstm(w, "lstm", np.concatenate([code, r]), h, c)
        b, k, v, q = np.split(np.tanh(linear(w, "heads", h)), 4)
        beta = sigmoid(linear(w, "rate", b))
        output, expected = recall(k), np.split(linear(w, "targets", v), 3)
        below = [k, *output[:2]]
        for layer in range(3):
            error = (output[layer] - expected[layer]) * 2 / d
            M[layer] = M[layer] - np.outer(error, beta * below[layer])
        missed += ((recall(k)[-1] - v) ** 2).mean()
        r = recall(q)[-1]
    out = linear(w, "read_out", np.concatenate([h, r]))
    return linear(w, "head", out), missed / len(z)


def picture_rnn(w, u):
    """With an LSTM of one layer."""
    z, width = context_norm(w, u), w["head.weight"].shape[1]
    h, c = np.zeros(width), np.zeros(width)
    for code in z:
        h, c = lstm(w, "network.cells.0", code, h, c)
    return linear(w, "head", h)
