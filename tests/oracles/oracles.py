"""The equations again, plainly, in NumPy, from the papers: what cells are compared with."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def elman(x, h, W_xh, W_hh, b, phi):
    outputs = []
    for x_t in x:
        h = phi(h @ W_hh.T + x_t @ W_xh.T + b)
        outputs.append(h)
    return np.stack(outputs), h


def lstm(x, h, c, V, W, b):
    """Gates stacked as input, forget, candidate, output."""
    n = h.shape[-1]
    outputs = []
    for x_t in x:
        a = h @ W.T + x_t @ V.T + b
        i, f, g, o = (a[:, k * n : (k + 1) * n] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), h, c


def gru(x, h, V, W, b, d):
    """Gates stacked as reset, update, candidate; d is the recurrent bias."""
    n = h.shape[-1]
    outputs = []
    for x_t in x:
        a, r = x_t @ V.T + b, h @ W.T + d
        reset = sigmoid(a[:, :n] + r[:, :n])
        update = sigmoid(a[:, n : 2 * n] + r[:, n : 2 * n])
        candidate = np.tanh(a[:, 2 * n :] + reset * r[:, 2 * n :])
        h = (1 - update) * candidate + update * h
        outputs.append(h)
    return np.stack(outputs), h


def unicornn_layer(u, y, z, w, V, b, c, dt, alpha):
    """Equation 6 of the paper."""
    step = dt * sigmoid(c)
    outputs = []
    for u_n in u:
        z = z - step * (np.tanh(w * y + u_n @ V.T + b) + alpha * y)
        y = y + step * z
        outputs.append(y)
    return np.stack(outputs), y, z
