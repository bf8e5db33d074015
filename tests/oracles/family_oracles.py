"""The recurrent family's equations again, plainly, in NumPy, from the papers.

Each oracle takes the input (time, batch, features), a cell to read the parameters from, and
returns all outputs from the cell's own first state.
"""

import numpy as np
import scipy.linalg

from oracles import sigmoid


def array(parameter):
    return parameter.detach().numpy()


def free(cell, name="weight_hh", index=None):
    original = cell.parametrizations[name]
    return array(original.original if index is None else getattr(original, f"original{index}"))


def skew(m):
    upper = np.triu(m, 1)
    return upper - upper.T


def modrelu(s, b):
    return np.sign(s) * np.maximum(np.abs(s) + b, 0)


def phi(kind, s, b):
    if kind == "modrelu":
        return modrelu(s, b)
    if kind == "tanh":
        return np.tanh(s + b)
    leak = {"relu": 0.0, "leaky-relu": 0.1, "identity": 1.0}[kind]
    return np.where(s + b > 0, s + b, leak * (s + b))


def orthogonal_network(x, cell, W):
    h, outputs = np.zeros((x.shape[1], W.shape[0])), []
    for x_t in x:
        s = x_t @ array(cell.input_weight).T + h @ W.T
        h = phi(cell.nonlinearity, s, array(cell.bias))
        outputs.append(h)
    return np.stack(outputs)


def exprnn(x, cell):
    return orthogonal_network(x, cell, scipy.linalg.expm(skew(free(cell))))


def scornn(x, cell):
    n = cell.hidden_size
    D = np.diag([1.0] * (n - n // 2) + [-1.0] * (n // 2))
    A, eye = skew(free(cell)), np.eye(n)
    return orthogonal_network(x, cell, np.linalg.inv(eye + A) @ (eye - A) @ D)


def ornn(x, cell):
    n, W = cell.hidden_size, np.eye(cell.hidden_size)
    for i, v in enumerate(array(cell.vectors).T):
        v = np.where(np.arange(n) < i, 0, v)
        W = W @ (np.eye(n) - 2 * np.outer(v, v) / (v @ v))
    return orthogonal_network(x, cell, W)


def spectral(x, cell):
    maps = cell.parametrizations["weight_hh"][0]
    U = array(maps.left) @ scipy.linalg.expm(skew(free(cell, index=0)))
    Z = array(maps.right) @ scipy.linalg.expm(skew(free(cell, index=1)))
    s = 1 + 2 * cell.margin * (sigmoid(free(cell, index=2)) - 0.5)
    return orthogonal_network(x, cell, U @ np.diag(s) @ Z.T)


def nnrnn(x, cell):
    turn, gamma, theta, lower = (free(cell, index=i) for i in range(4))
    n = cell.hidden_size
    form = np.zeros((n, n))
    for i in range(n // 2):
        c, s = np.cos(theta[i]), np.sin(theta[i])
        form[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = gamma[i] * np.array([[c, -s], [s, c]])
    if n % 2:
        form[-1, -1] = gamma[-1]
    for row in range(n):
        for column in range(row // 2 * 2):
            form[row, column] = lower[row, column]
    P = scipy.linalg.expm(skew(turn))
    return orthogonal_network(x, cell, P @ form @ P.T)


def antisymmetric(x, cell):
    n = cell.hidden_size
    A = skew(free(cell, "weight")) - cell.diffusion * np.eye(n)
    h, outputs = np.zeros((x.shape[1], n)), []
    for x_t in x:
        drive = x_t @ array(cell.input_weight).T + array(cell.bias)
        h = h + cell.step * np.tanh(h @ A.T + drive)
        outputs.append(h)
    return np.stack(outputs)


def gated_antisymmetric(x, cell):
    n = cell.hidden_size
    A = skew(free(cell, "weight")) - cell.diffusion * np.eye(n)
    V, b = array(cell.input_weight), array(cell.bias)
    h, outputs = np.zeros((x.shape[1], n)), []
    for x_t in x:
        z = sigmoid(h @ A.T + x_t @ V[n:].T + b[n:])
        h = h + cell.step * z * np.tanh(h @ A.T + x_t @ V[:n].T + b[:n])
        outputs.append(h)
    return np.stack(outputs)


def cornn(x, cell):
    n, both = cell.hidden_size, array(cell.weight_hh)
    W, Wz = both[:, :n], both[:, n:]
    y = z = np.zeros((x.shape[1], n))
    outputs = []
    for x_t in x:
        force = np.tanh(y @ W.T + z @ Wz.T + x_t @ array(cell.input_weight).T + array(cell.bias))
        z = z + cell.dt * (force - cell.gamma * y - cell.epsilon * z)
        y = y + cell.dt * z
        outputs.append(y)
    return np.stack(outputs)


def lipschitz(x, cell):
    n = cell.hidden_size
    A, W = (
        cell.beta * (M - M.T) + (1 - cell.beta) * (M + M.T) - cell.gamma * np.eye(n)
        for M in (array(cell.linear_free), array(cell.lipschitz_free))
    )
    h, outputs = np.zeros((x.shape[1], n)), []
    for x_t in x:
        inner = h @ W.T + x_t @ array(cell.input_weight).T + array(cell.bias)
        h = h + cell.step * (h @ A.T + np.tanh(inner))
        outputs.append(h)
    return np.stack(outputs)


def fastrnn(x, cell):
    alpha, beta = sigmoid(array(cell.new_logit)), sigmoid(array(cell.old_logit))
    U, h, outputs = array(cell.weight_hh), np.zeros((x.shape[1], cell.hidden_size)), []
    for x_t in x:
        s = h @ U.T + x_t @ array(cell.input_weight).T + array(cell.bias)
        h = alpha * np.tanh(s) + beta * h
        outputs.append(h)
    return np.stack(outputs)


def fastgrnn(x, cell):
    zeta, nu = sigmoid(array(cell.closed_logit)), sigmoid(array(cell.always_logit))
    U, h, outputs = array(cell.weight_hh), np.zeros((x.shape[1], cell.hidden_size)), []
    for x_t in x:
        s = h @ U.T + x_t @ array(cell.input_weight).T
        z, c = sigmoid(s + array(cell.gate_bias)), np.tanh(s + array(cell.bias))
        h = (zeta * (1 - z) + nu) * c + z * h
        outputs.append(h)
    return np.stack(outputs)


def incremental(x, cell):
    U, h, outputs = array(cell.weight_hh), np.zeros((x.shape[1], cell.hidden_size)), []
    for x_t in x:
        drive, g = x_t @ array(cell.input_weight).T + array(cell.bias), np.zeros_like(h)
        for eta in array(cell.steps):
            g = g + eta * (np.tanh((g + h) @ U.T + drive) - cell.alpha * (g + h))
        h = g
        outputs.append(h)
    return np.stack(outputs)


def sru(x, cell):
    n, V = cell.hidden_size, array(cell.input_weight)
    c, outputs = np.zeros((x.shape[1], n)), []
    for x_t in x:
        new, f, r = (x_t @ V[k * n : (k + 1) * n].T for k in range(3))
        # b_r starts at zero: α = √(1 + 2 exp(0)), in V itself where there is a fourth matrix;
        # the network was made in single precision.
        s = x_t @ V[3 * n :].T if len(V) > 3 * n else np.float32(3**0.5) * x_t
        f = sigmoid(f + array(cell.forget_weight) * c + array(cell.forget_bias))
        r = sigmoid(r + array(cell.reset_weight) * c + array(cell.reset_bias))
        c = f * c + (1 - f) * new
        outputs.append(r * c + (1 - r) * s)
    return np.stack(outputs)


def indrnn(x, cell):
    h, outputs = np.zeros((x.shape[1], cell.hidden_size)), []
    for x_t in x:
        s = array(cell.weight) * h + x_t @ array(cell.input_weight).T + array(cell.bias)
        h = np.maximum(s, 0)
        outputs.append(h)
    return np.stack(outputs)


def goru(x, cell):
    n, turn = cell.hidden_size, scipy.linalg.expm(skew(free(cell, "orthogonal")))
    V, U, b = array(cell.input_weight), array(cell.gate_weight), array(cell.gate_bias)
    h, outputs = np.zeros((x.shape[1], n)), []
    for x_t in x:
        r = sigmoid(x_t @ V[:n].T + h @ U[:n].T + b[:n])
        u = sigmoid(x_t @ V[n : 2 * n].T + h @ U[n:].T + b[n:])
        c = modrelu(x_t @ V[2 * n :].T + r * (h @ turn.T), array(cell.bias))
        h = u * h + (1 - u) * c
        outputs.append(h)
    return np.stack(outputs)


def unitary_network(x, cell, W, h, scale):
    n, V = cell.hidden_size, array(cell.input_weight)
    V = V[:n] + 1j * V[n:]
    outputs = []
    for x_t in x:
        z = x_t @ V.T + h @ W.T
        h = z * scale(np.abs(z))
        outputs.append(np.concatenate([h.real, h.imag], axis=-1))
    return np.stack(outputs)


def _start(x, cell):
    start, n = array(cell.start), cell.hidden_size
    return np.tile(start[:n] + 1j * start[n:], (x.shape[1], 1))


def urnn(x, cell):
    n, numbers = cell.hidden_size, array(cell.free)
    D = [np.diag(np.exp(1j * phase)) for phase in numbers[:3]]
    reflections = []
    for re, im in (numbers[3:5], numbers[5:7]):
        v = re + 1j * im
        reflections.append(np.eye(n) - 2 * np.outer(v, v.conj()) / np.vdot(v, v))
    F = np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n) / np.sqrt(n)
    permutation = np.eye(n)[array(cell.maps.permutation)]
    R1, R2 = reflections
    W = D[2] @ R2 @ F.conj().T @ D[1] @ permutation @ R1 @ F @ D[0]
    b = array(cell.bias)
    return unitary_network(x, cell, W, _start(x, cell), lambda r: np.maximum(r + b, 0) / (r + 1e-5))


def full_capacity_urnn(x, cell):
    W, b = array(cell.unitary)[0] + 1j * array(cell.unitary)[1], array(cell.bias)
    return unitary_network(x, cell, W, _start(x, cell), lambda r: np.maximum(r + b, 0) / (r + 1e-5))


def eurnn(x, cell):
    n, numbers, count = cell.hidden_size, array(cell.free), cell.maps.angles
    alpha, phases, diagonal = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
    W, k = np.eye(n, dtype=complex), 0
    for layer in range(cell.maps.layers):
        F = np.eye(n, dtype=complex)
        for p in range(layer % 2, n - 1, 2):
            c, s, e = np.cos(alpha[k]), np.sin(alpha[k]), np.exp(1j * phases[k])
            F[p : p + 2, p : p + 2] = [[c, -e * s], [s, e * c]]
            k += 1
        W = F @ W
    W, b = np.diag(np.exp(1j * diagonal)) @ W, array(cell.bias)
    zero = np.zeros((x.shape[1], n), dtype=complex)
    return unitary_network(x, cell, W, zero, lambda r: np.maximum(r + 0.01 + b, 0) / (r + 0.01))


def filtered(kind, u, drive):
    """The drives of the momentum networks over a whole sequence of projected inputs."""
    v, m, drives = np.zeros_like(u[0]), np.zeros_like(u[0]), []
    for k, u_t in enumerate(u):
        within = k % drive.restart
        mu = within / (within + 3) if kind == "nesterov" else drive.momentum
        v = mu * v + drive.step * u_t
        m = drive.decay * m + (1 - drive.decay) * u_t**2
        size = np.sqrt(m + drive.softening)
        drives.append(
            {
                "momentum": v,
                "nesterov": v,
                "rmsprop": drive.step * u_t / size,
                "adam": v / size,
            }[kind]
        )
    return np.stack(drives)


def momentum_rnn(kind):
    def run(x, cell):
        u = x @ array(cell.weight_ih).T + array(cell.bias_ih)
        h, outputs = np.zeros((x.shape[1], cell.hidden_size)), []
        for p in filtered(kind, u, cell.input_filter):
            h = np.tanh(h @ array(cell.weight_hh).T + p)
            outputs.append(h)
        return np.stack(outputs)

    return run


def momentum_lstm(kind):
    def run(x, cell):
        n, u = cell.hidden_size, x @ array(cell.weight_ih).T + array(cell.bias_ih)
        h = c = np.zeros((x.shape[1], n))
        outputs = []
        for p in filtered(kind, u, cell.input_filter):
            a = p + h @ array(cell.weight_hh).T + array(cell.bias_hh)
            i, f, g, o = (a[:, k * n : (k + 1) * n] for k in range(4))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            outputs.append(h)
        return np.stack(outputs)

    return run


def passed_by(x_t, cell):
    D = array(cell.pass_weight)
    return D * x_t if D.ndim == 1 else x_t @ D.T


def oscillating(x, cell, kick):
    """Complex oscillators as the papers write them; `kick` is z' of x, z and B u."""
    P, step = cell.oscillators, sigmoid(array(cell.step_logit))
    B = array(cell.input_weight)[:P] + 1j * array(cell.input_weight)[P:]
    C = array(cell.output_weight)[:, :P] - 1j * array(cell.output_weight)[:, P:]
    position = velocity = np.zeros((x.shape[1], P), complex)
    outputs = []
    for x_t in x:
        velocity = kick(position, velocity, x_t @ B.T, step)
        position = position + step * velocity
        outputs.append((position @ C.T).real + passed_by(x_t, cell))
    return np.stack(outputs)


def linoss(x, cell):
    A = np.maximum(array(cell.frequency), 0)

    def implicit(position, velocity, force, step):
        S = 1 / (1 + step**2 * A)
        return S * (velocity - step * A * position + step * force)

    def by_turns(position, velocity, force, step):
        return velocity + step * (-A * position + force)

    return oscillating(x, cell, implicit if cell.method == "im" else by_turns)


def dlinoss(x, cell):
    G = np.maximum(array(cell.damping), 0)

    def kick(position, velocity, force, step):
        low, high = (
            (2 + step * G + sign * 2 * np.sqrt(1 + step * G)) / step**2 for sign in (-1, 1)
        )
        A = np.clip(array(cell.frequency), low, high)
        return (velocity + step * (-A * position + force)) / (1 + step * G)

    return oscillating(x, cell, kick)


def lru(x, cell):
    decay, phase, gain = (
        np.exp(array(p)) for p in (cell.shrink_log, cell.phase_log, cell.gain_log)
    )
    V, U = array(cell.input_weight), array(cell.output_weight)
    B, C = V[:, 0] + 1j * V[:, 1], U[:, ::2] - 1j * U[:, 1::2]
    h, outputs = np.zeros((x.shape[1], cell.modes), complex), []
    for x_t in x:
        h = np.exp(-decay + 1j * phase) * h + gain * (x_t @ B.T)
        outputs.append((h @ C.T).real + passed_by(x_t, cell))
    return np.stack(outputs)


def s4d(x, cell):
    step = np.exp(array(cell.step_log))
    A = -np.exp(array(cell.rate_log)) + 1j * array(cell.frequency)
    if cell.discretisation == "zoh":
        A_bar = np.exp(step * A)
        B_bar = (A_bar - 1) / A
    else:
        A_bar = (1 + step * A / 2) / (1 - step * A / 2)
        B_bar = step / (1 - step * A / 2)
    C, D = array(cell.output_weight) @ np.array([1, 1j]), array(cell.pass_weight)
    h, outputs = np.zeros((x.shape[1], *A.shape), complex), []
    for x_t in x:
        u = x_t if cell.encoder is None else x_t @ array(cell.encoder).T
        h = A_bar * h + B_bar * u[:, :, None]
        outputs.append(2 * (C * h).sum(-1).real + D * u)
    return np.stack(outputs)


def lmu(x, cell):
    """Memories in the paper's coordinates; those of the cell are divided by √(2i + 1)."""
    i = np.arange(cell.order)
    signs = np.where(i[:, None] < i, -1.0, (-1.0) ** (i[:, None] - i + 1))
    A = (2 * i[:, None] + 1) * signs / cell.window
    B = (2 * i + 1) * (-1.0) ** i / cell.window
    A_bar = scipy.linalg.expm(A)
    B_bar = np.linalg.solve(A, (A_bar - np.eye(cell.order)) @ B)
    e_x, W_x, W_m, b = (
        array(p) for p in (cell.encoder, cell.input_weight, cell.memory_weight, cell.bias)
    )
    h, m = np.zeros((x.shape[1], cell.hidden_size)), np.zeros((x.shape[1], *e_x.shape[:1], len(i)))
    outputs = []
    for x_t in x:
        u, direct = x_t @ e_x.T, 0
        if cell.feedback:
            u = u + h @ array(cell.hidden_encoder).T
            u = u + m.reshape(len(m), -1) @ array(cell.memory_encoder).T
            direct = h @ array(cell.weight_hh).T
        m = m @ A_bar.T + u[:, :, None] * B_bar
        h = np.tanh(x_t @ W_x.T + direct + m.reshape(len(m), -1) @ W_m.T + b)
        outputs.append(h)
    return np.stack(outputs)


def kept_positive(v):
    return np.where(v >= 0, v + 0.5, sigmoid(v))


def mingru(x, cell):
    h, outputs = np.zeros((x.shape[1], cell.hidden_size)), []
    for x_t in x:
        gate, candidate = np.split(x_t @ array(cell.input_weight).T + array(cell.bias), 2, -1)
        h = (1 - sigmoid(gate)) * h + sigmoid(gate) * kept_positive(candidate)
        outputs.append(h)
    return np.stack(outputs)


def latch(x, cell):
    h, outputs = np.zeros((x.shape[1], cell.hidden_size)), []
    weight, bias = array(cell.norm.weight), array(cell.norm.bias)
    for x_t in x:
        gate, candidate = np.split(x_t @ array(cell.input_weight).T + array(cell.bias), 2, -1)
        q = np.clip(0.5 + gate * cell.slope, 0, 1)
        h = (1 - q) * h + q * kept_positive(candidate)
        centred = h - h.mean(-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        outputs.append(centred / scale * weight + bias)
    return np.stack(outputs)


def latch_gru(x, cell):
    h, outputs = np.zeros((x.shape[1], cell.hidden_size)), []
    for x_t in x:
        total = h @ array(cell.weight_hh).T + x_t @ array(cell.input_weight).T + array(cell.bias)
        gate, candidate = np.split(total, 2, -1)
        q = np.clip(0.5 + gate / 4, 0, 1)
        h = (1 - q) * h + q * np.tanh(candidate)
        outputs.append(h)
    return np.stack(outputs)


def minlstm(x, cell):
    h, outputs = np.zeros((x.shape[1], cell.hidden_size)), []
    for x_t in x:
        f, i, candidate = np.split(x_t @ array(cell.input_weight).T + array(cell.bias), 3, -1)
        f, i = sigmoid(f), sigmoid(i)
        h = f / (f + i) * h + i / (f + i) * kept_positive(candidate)
        outputs.append(h)
    return np.stack(outputs)


def lem(x, cell):
    n, V, b = cell.hidden_size, array(cell.input_weight), array(cell.bias)
    W, Wy = array(cell.weight_hh), array(cell.weight_zy)
    y = z = np.zeros((x.shape[1], n))
    outputs = []
    for x_t in x:
        u = np.split(x_t @ V.T + b, 4, -1)
        a = cell.dt * sigmoid(y @ W[:n].T + u[0])
        c = cell.dt * sigmoid(y @ W[n : 2 * n].T + u[1])
        z = (1 - a) * z + a * np.tanh(y @ W[2 * n :].T + u[2])
        y = (1 - c) * y + c * np.tanh(z @ Wy.T + u[3])
        outputs.append(y)
    return np.stack(outputs)


def standardised(u, gain, shift=0.0):
    mean, variance = u.mean(-1, keepdims=True), u.var(-1, keepdims=True)
    return gain * (u - mean) / np.sqrt(variance + 1e-5) + shift


def layer_norm_lstm(x, cell):
    """Ba, Kiros and Hinton, equations 20 to 22, with gates in the order i, f, g, o."""
    h = c = np.zeros((x.shape[1], cell.hidden_size))
    W, V, b = array(cell.weight_hh), array(cell.input_weight), array(cell.bias)
    outputs = []
    for x_t in x:
        u = standardised(h @ W.T, array(cell.hidden_gain))
        u = u + standardised(x_t @ V.T, array(cell.input_gain)) + b
        i, f, g, o = np.split(u, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(standardised(c, array(cell.memory_gain), array(cell.memory_bias)))
        outputs.append(h)
    return np.stack(outputs)


def layer_norm_gru(x, cell):
    """Ba, Kiros and Hinton, equations 27 to 29, where 1 - z is their z."""
    n, h, outputs = cell.hidden_size, np.zeros((x.shape[1], cell.hidden_size)), []
    W, V, b = array(cell.weight_hh), array(cell.input_weight), array(cell.bias)
    a, e = array(cell.hidden_gain), array(cell.input_gain)
    for x_t in x:
        gates = standardised(h @ W[: 2 * n].T, a[: 2 * n])
        gates = gates + standardised(x_t @ V[: 2 * n].T, e[: 2 * n], b[: 2 * n])
        r, z = np.split(sigmoid(gates), 2, -1)
        inside = standardised(h @ W[2 * n :].T, a[2 * n :], array(cell.candidate_bias))
        outside = standardised(x_t @ V[2 * n :].T, e[2 * n :], b[2 * n :])
        h = (1 - z) * np.tanh(outside + r * inside) + z * h
        outputs.append(h)
    return np.stack(outputs)


ORACLES = {
    "layer-norm-lstm": layer_norm_lstm,
    "layer-norm-gru": layer_norm_gru,
    "exprnn": exprnn,
    "scornn": scornn,
    "ornn": ornn,
    "spectral": spectral,
    "nnrnn": nnrnn,
    "antisymmetric": antisymmetric,
    "gated-antisymmetric": gated_antisymmetric,
    "cornn": cornn,
    "lipschitz": lipschitz,
    "fastrnn": fastrnn,
    "fastgrnn": fastgrnn,
    "incremental": incremental,
    "sru": sru,
    "indrnn": indrnn,
    "residual-indrnn": indrnn,
    "dense-indrnn": indrnn,
    "lem": lem,
    "linoss": linoss,
    "d-linoss": dlinoss,
    "lru": lru,
    "s4d": s4d,
    "lmu": lmu,
    "mingru": mingru,
    "minlstm": minlstm,
    "latch": latch,
    "latch-gru": latch_gru,
    "goru": goru,
    "urnn": urnn,
    "full-capacity-urnn": full_capacity_urnn,
    "eurnn": eurnn,
    **{f"{kind}-rnn": momentum_rnn(kind) for kind in ("momentum", "nesterov", "rmsprop", "adam")},
    **{f"{kind}-lstm": momentum_lstm(kind) for kind in ("momentum", "nesterov", "rmsprop", "adam")},
}
