"""Networks of irregular time again, plainly, in NumPy: one sequence, one sample after the other.

Each oracle takes one sequence: x (time, input), times (time,), seen (time, input), the network to
read the parameters from, and moments that are asked about. It returns the output after every
sample, and that at the moments, each from what was known then.
"""

import numpy as np

from oracles import sigmoid


def array(parameter):
    return parameter.detach().numpy()


def linear(layer, x):
    bias = 0 if layer.bias is None else array(layer.bias)
    return x @ array(layer.weight).T + bias


def gru(cell, x, h):
    n = len(h)
    i = array(cell.weight_ih) @ x + array(cell.bias_ih)
    s = array(cell.weight_hh) @ h + array(cell.bias_hh)
    r, z = sigmoid(i[:n] + s[:n]), sigmoid(i[n : 2 * n] + s[n : 2 * n])
    candidate = np.tanh(i[2 * n :] + r * s[2 * n :])
    return (1 - z) * candidate + z * h


def rk4(field, y, dt, steps=1):
    h = dt / steps
    for _ in range(steps):
        k1 = field(y)
        k2 = field(y + h / 2 * k1)
        k3 = field(y + h / 2 * k2)
        k4 = field(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def perceptron(field, y):
    for layer in field.hidden:
        y = np.tanh(linear(layer, y))
    return linear(field.readout, y)


def rotating(field, y):
    return array(field.turning) @ y + perceptron(field.perceptron, y)


def gru_field(field, h):
    n = len(h)
    gates = sigmoid(array(field.gates.weight) @ h)
    r, z = gates[:n], gates[n:]
    return (1 - z) * (np.tanh(array(field.candidate.weight) @ (r * h)) - h)


def filtered(x, times, seen, net, asked, flow, jump, h):
    """Flow and jump through a sequence, and branch off to the moments."""
    now, outputs, answers = 0.0, [], {}
    queue = sorted(range(len(asked)), key=lambda i: asked[i])
    branch, branched = h, now

    def ask_until(moment):
        nonlocal branch, branched
        while queue and asked[queue[0]] < moment:
            i = queue.pop(0)
            branch = flow(branch, (asked[i] - branched) / net.gap)
            branched = asked[i]
            answers[i] = branch

    for x_t, t, m in zip(x, times, seen, strict=True):
        ask_until(t)
        h = flow(h, (t - now) / net.gap)
        if m.any():
            h = jump(np.where(m, x_t, 0), m, h)
        now = t
        branch, branched = h, now
        outputs.append(h)
    ask_until(np.inf)
    return np.stack(outputs), np.stack([answers[i] for i in range(len(asked))])


def read(net, x, m):
    return np.concatenate([x, m]) if net.missing else x


def ode_rnn(x, times, seen, net, asked):
    field = net.gap_flow.field
    return filtered(
        *(x, times, seen, net, asked),
        lambda h, gap: rk4(lambda y: perceptron(field, y), h, gap, net.gap_flow.steps),
        lambda v, m, h: gru(net.cell, read(net, v, m), h),
        np.zeros(net.hidden_size),
    )


def decay_rnn(x, times, seen, net, asked):
    rate = np.exp(array(net.gap_flow.log_rate))
    return filtered(
        *(x, times, seen, net, asked),
        lambda h, gap: h * np.exp(-rate * gap),
        lambda v, m, h: gru(net.cell, read(net, v, m), h),
        np.zeros(net.hidden_size),
    )


def modes_rnn(x, times, seen, net, asked):
    omega, half = array(net.gap_flow.frequency), net.hidden_size // 2
    damping = 0 if net.gap_flow.log_rate is None else np.exp(array(net.gap_flow.log_rate))

    def turn(h, gap):
        z = (h[:half] + 1j * h[half:]) * np.exp((-damping + 1j * omega) * gap)
        return np.concatenate([z.real, z.imag])

    return filtered(
        *(x, times, seen, net, asked),
        turn,
        lambda v, m, h: gru(net.cell, read(net, v, m), h),
        np.zeros(net.hidden_size),
    )


def gru_d(x, times, seen, net, asked):
    def left(delta):
        return np.exp(-np.maximum(0, linear(net.state_decay, delta)))

    h, last, stamp = np.zeros(net.hidden_size), np.zeros(x.shape[1]), np.zeros(x.shape[1])
    states, outputs = [(0.0, h, stamp.copy())], []
    for x_t, t, m in zip(x, times, seen, strict=True):
        if m.any():
            delta = (t - stamp) / net.gap
            kept = np.exp(-np.maximum(0, array(net.input_rate) * delta + array(net.input_shift)))
            filled = np.where(m, x_t, kept * last + (1 - kept) * array(net.mean))
            h = gru(net.cell, np.concatenate([filled, m]), left(delta) * h)
            last, stamp = np.where(m, x_t, last), np.where(m, t, stamp)
            states.append((t, h, stamp))
            outputs.append(h)
        else:
            outputs.append(left((t - stamp) / net.gap) * h)
    answers = []
    for t in asked:
        then, h, stamp = [s for s in states if s[0] <= t][-1]
        answers.append(left((t - stamp) / net.gap) * h if t > then else h)
    return np.stack(outputs), np.stack(answers)


def cfc(x, times, seen, net, asked):
    def step(v, h, gap):
        s = linear(net.read, v) + array(net.recall.weight) @ h
        b = 1.7159 * np.tanh(2 / 3 * s)
        f, g, p, q = np.split(linear(net.heads, b), 4)
        share = sigmoid(p * gap + q)
        return (1 - share) * np.tanh(f) + share * np.tanh(g)

    nothing = np.zeros(net.read.in_features)
    h, now = np.zeros(net.hidden_size), 0.0
    states, outputs = [(now, h)], []
    for x_t, t, m in zip(x, times, seen, strict=True):
        if m.any():
            h, now = step(read(net, np.where(m, x_t, 0), m), h, (t - now) / net.gap), t
            states.append((now, h))
            outputs.append(h)
        else:
            outputs.append(step(nothing, h, (t - now) / net.gap))
    answers = []
    for t in asked:
        then, h = [s for s in states if s[0] <= t][-1]
        answers.append(step(nothing, h, (t - then) / net.gap) if t > then else h)
    return np.stack(outputs), np.stack(answers)


def neural_cde(x, times, seen, net, asked):
    """The equation dz/ds = f(z) dX/ds with rk4 on the control of every piece."""

    def matrix(z):
        s = np.tanh(linear(net.outer, np.maximum(0, linear(net.inner, z))))
        return s.reshape(net.hidden_size, net.channels)

    def follow(z, before, after, slope):
        """From one control point to the next; the slope is per unit of time, None for a line."""
        move, gap = after - before, after[0] - before[0]
        z, size = z.copy(), 1 / net.steps
        for i in range(net.steps):

            def push(y, s, i=i):
                s = (i + s) * size
                if slope is None:
                    return matrix(y) @ move
                # Hermite's cubic from `before` to `after`, slopes `slope·gap` and `move`.
                h01, h10, h11 = 6 * s - 6 * s * s, 1 - 4 * s + 3 * s * s, 3 * s * s - 2 * s
                return matrix(y) @ (h01 * move + h10 * slope * gap + h11 * move)

            k1 = push(z, 0.0)
            k2 = push(z + size / 2 * k1, 0.5)
            k3 = push(z + size / 2 * k2, 0.5)
            k4 = push(z + size * k3, 1.0)
            z = z + size / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return z

    def control(t, last, counts):
        return np.concatenate(
            [[t / net.gap], last, counts] if net.missing else [[t / net.gap], last]
        )

    width = x.shape[1]
    last, counts = np.zeros(width), np.zeros(width)
    z, point, slope = np.zeros(net.hidden_size), None, None
    states, outputs = [], []

    def ahead(z, point, t):
        if point is None or t / net.gap <= point[0]:
            return z
        later = point.copy()
        later[0] = t / net.gap
        own = (later - point) / (later[0] - point[0])
        return follow(z, point, later, own if net.control == "cubic" else None)

    for x_t, t, m in zip(x, times, seen, strict=True):
        if not m.any():
            outputs.append(ahead(z, point, t))
            continue
        last, counts = np.where(m, x_t, last), counts + m
        new = control(t, last, counts)
        if point is None:
            z = linear(net.enter, new)
        else:
            own = (new - point) / (new[0] - point[0])
            left = own if slope is None else slope
            z = follow(z, point, new, left if net.control == "cubic" else None)
            slope = own
        point = new
        states.append((t, z, point))
        outputs.append(z)
    answers = []
    for t in asked:
        known = [s for s in states if s[0] <= t]
        answers.append(ahead(known[-1][1], known[-1][2], t) if known else np.zeros_like(z))
    return np.stack(outputs), np.stack(answers)


def bayes(x, times, seen, net, asked):
    """GRU-ODE-Bayes, with the authors' preparation of every channel."""
    field = net.gap_flow.field

    def jump(v, m, h):
        s = linear(net.forecast[2], np.maximum(0, linear(net.forecast[0], h)))
        mean, log_variance = np.split(s, 2)
        error = (v - mean) / np.exp(0.5 * log_variance)
        prepared = []
        for c in range(len(v)):
            parts = np.array([v[c], mean[c], log_variance[c], error[c]])
            one = np.maximum(0, parts @ array(net.prepare)[c] + array(net.prepare_bias)[c])
            prepared.append(one * m[c])
        return gru(net.cell, np.concatenate(prepared), h)

    def flow(h, gap):
        steps = max(net.gap_flow.steps, int(np.ceil(gap / 2.5)))
        return rk4(lambda y: gru_field(field, y), h, gap, steps)

    return filtered(
        *(x, times, seen, net, asked),
        flow,
        jump,
        np.zeros(net.hidden_size),
    )


def read_backwards(encoder, x, times, seen, oracle):
    """What an encoder says about time 0: mean and logarithm of the deviation."""
    net, since_end = encoder.network, times[-1] - times[::-1]
    _, ((known,)) = oracle(x[::-1], since_end, seen[::-1], net, np.array([times[-1]]))
    hidden = np.tanh(linear(encoder.readout[0], known))
    mean, raw = np.split(linear(encoder.readout[2], hidden), 2)
    return mean, 5 * np.tanh(raw / 5) - 2


def log_normal(x, mean, std):
    return -0.5 * ((x - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)


ORACLES = {
    "ode-rnn": ode_rnn,
    "decay-rnn": decay_rnn,
    "modes-rnn": modes_rnn,
    "gru-d": gru_d,
    "cfc": cfc,
    "neural-cde": neural_cde,
}
