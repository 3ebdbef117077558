"""How far apart colours look, to readers with and without all kinds of cones."""

from collections.abc import Iterable
from itertools import combinations

import numpy as np
from matplotlib.colors import to_rgb

# What red, green and blue light become for eyes without one kind of cone (Machado, Oliveira and Fernandes, 2009).
EYES = {
    "all cones": np.eye(3),
    "no long waves": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no middle waves": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "no short waves": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def light(colours: Iterable[str]) -> np.ndarray:
    """The red, green and blue light of colours of a screen."""
    screen = np.array([to_rgb(colour) for colour in colours])
    return np.where(screen <= 0.04045, screen / 12.92, ((screen + 0.055) / 1.055) ** 2.4)


def contrast(colour: str, other: str) -> float:
    """Return the ratio of two colours' brightness as the web's guidelines compute it: from 1 to 21."""
    dark, bright = sorted(light([colour, other]) @ [0.2126, 0.7152, 0.0722])
    return float((bright + 0.05) / (dark + 0.05))


def lab(light: np.ndarray) -> np.ndarray:
    """CIE's L*, a* and b*, in which distances are about as large as they look."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    relative = np.clip(light, 0, 1) @ to_xyz.T / to_xyz.sum(1)
    bent = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16 / 116)
    x, y, z = bent.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


def nearest(colours: Iterable[str], eyes: str) -> float:
    """How far apart the two colours lie that such eyes take most easily for one another."""
    seen = lab(light(colours) @ np.transpose(EYES[eyes]))
    return min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2))
