"""The DETEST problems (Hull, Enright, Fellen and Sedgwick, 1972): five classes of five.

A single equations, B small systems, C moderate systems, D orbits, E equations of higher order. All
are integrated from 0 to 20 in the original; starts are those of the paper.
"""

import math

import torch


def stack(*parts):
    return torch.stack(parts)


def _radioactive(rates):
    def field(t, y):
        lost = torch.tensor(rates, dtype=y.dtype) * y[:-1]
        nought = y.new_zeros(1)
        return torch.cat((-lost, nought)) + torch.cat((nought, lost))

    return field


def _diffusion(size):
    def field(t, y):
        padded = torch.cat((y.new_zeros(1), y, y.new_zeros(1)))
        return padded[2:] - 2 * y + padded[:-2]

    return field, [1.0] + [0.0] * (size - 1)


# The five outer planets, with the sun and the inner four as one mass.
_GRAVITY = 2.95912208286
_SUN = 1.00000597682
_MASSES = [9.54786104043e-4, 2.85583733151e-4, 4.37273164546e-5, 5.17759138449e-5, 2.77777777778e-6]
_PLACES = [
    [3.42947415189, 3.35386959711, 1.35494901715],
    [6.64145542550, 5.97156957878, 2.18231499728],
    [11.2630437207, 14.6952576794, 6.27960525067],
    [-30.1552268759, 1.65699966404, 1.43785752721],
    [-21.1238353380, 28.4465098142, 15.3882659679],
]
_SPEEDS = [
    [-0.557160570446, 0.505696783289, 0.230578543901],
    [-0.415570776342, 0.365682722812, 0.169143213293],
    [-0.325325669158, 0.189706021964, 0.0877265322780],
    [-0.0240476254170, -0.287659532608, -0.117219543175],
    [-0.176860753121, -0.216393453025, -0.0148647893090],
]


def _planets(t, y):
    place, speed = y.view(2, 5, 3)
    mass = torch.tensor(_MASSES, dtype=y.dtype)
    cube = place.norm(dim=1) ** 3
    apart = place.unsqueeze(0) - place.unsqueeze(1)  # from each to each other
    distance = apart.norm(dim=2) + torch.eye(5, dtype=y.dtype)
    pulls = mass.view(1, 5, 1) * (
        apart / distance.unsqueeze(2) ** 3 - (place / cube.unsqueeze(1)).unsqueeze(0)
    )
    own = 1 - torch.eye(5, dtype=y.dtype).unsqueeze(2)
    towards_sun = -(_SUN + mass).unsqueeze(1) * place / cube.unsqueeze(1)
    force = _GRAVITY * (towards_sun + (own * pulls).sum(1))
    return torch.cat((speed.flatten(), force.flatten()))


def _orbit(t, y):
    cube = (y[0] ** 2 + y[1] ** 2) ** 1.5
    return stack(y[2], y[3], -y[0] / cube, -y[1] / cube)


def _orbit_start(eccentricity):
    e = eccentricity
    return [1 - e, 0.0, 0.0, math.sqrt((1 + e) / (1 - e))]


def _torus(t, y):
    radius = torch.sqrt(y[0] ** 2 + y[1] ** 2)
    return stack(-y[1] - y[0] * y[2] / radius, y[0] - y[1] * y[2] / radius, y[0] / radius)


def _bessel(t, y):
    return stack(y[1], -(y[1] / (t + 1) + (1 - 0.25 / (t + 1) ** 2) * y[0]))


PROBLEMS = {
    "A1": (lambda t, y: -y, [1.0]),
    "A2": (lambda t, y: -(y**3) / 2, [1.0]),
    "A3": (lambda t, y: y * torch.cos(t), [1.0]),
    "A4": (lambda t, y: y / 4 * (1 - y / 20), [1.0]),
    "A5": (lambda t, y: (y - t) / (y + t), [4.0]),
    "B1": (lambda t, y: stack(2 * (y[0] - y[0] * y[1]), -(y[1] - y[0] * y[1])), [1.0, 3.0]),
    "B2": (
        lambda t, y: stack(-y[0] + y[1], y[0] - 2 * y[1] + y[2], y[1] - y[2]),
        [2.0, 0.0, 1.0],
    ),
    "B3": (lambda t, y: stack(-y[0], y[0] - y[1] ** 2, y[1] ** 2), [1.0, 0.0, 0.0]),
    "B4": (_torus, [3.0, 0.0, 0.0]),
    "B5": (lambda t, y: stack(y[1] * y[2], -y[0] * y[2], -0.51 * y[0] * y[1]), [0.0, 1.0, 1.0]),
    "C1": (_radioactive([1.0] * 9), [1.0] + [0.0] * 9),
    "C2": (_radioactive([float(k) for k in range(1, 10)]), [1.0] + [0.0] * 9),
    "C3": _diffusion(10),
    "C4": _diffusion(51),
    "C5": (
        _planets,
        [x for row in _PLACES for x in row] + [x for row in _SPEEDS for x in row],
    ),
    **{f"D{k}": (_orbit, _orbit_start(0.2 * k - 0.1)) for k in range(1, 6)},
    "E1": (_bessel, [0.6713967071418030, 0.09540051444747446]),
    "E2": (lambda t, y: stack(y[1], (1 - y[0] ** 2) * y[1] - y[0]), [2.0, 0.0]),
    "E3": (lambda t, y: stack(y[1], y[0] ** 3 / 6 - y[0] + 2 * torch.sin(2.78535 * t)), [0.0, 0.0]),
    "E4": (lambda t, y: stack(y[1], 0.032 - 0.4 * y[1] ** 2), [30.0, 0.0]),
    "E5": (lambda t, y: stack(y[1], torch.sqrt(1 + y[1] ** 2) / (25 - t)), [0.0, 0.0]),
}

# What is known in closed form at t, for problems that have it.
EXACT = {
    "A1": lambda t: [math.exp(-t)],
    "A2": lambda t: [1 / math.sqrt(1 + t)],
    "A3": lambda t: [math.exp(math.sin(t))],
    "A4": lambda t: [20 / (1 + 19 * math.exp(-t / 4))],
}
