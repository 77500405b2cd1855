"""Pixels that a slide with channels should show, computed with numpy for comparison in tests."""

import json

import numpy


def data(seed, shape, kind, low=0, high=4000):
    """Values that differ from plane to plane, in the order t, c, z, y, x."""
    generator = numpy.random.default_rng(seed)
    planes = numpy.arange(numpy.prod(shape[:3])).reshape(*shape[:3], 1, 1)
    down, across = numpy.indices(shape[3:])
    smooth = (down * 7 + across * 3 + planes * 101) % 997 / 997
    values = 0.8 * smooth + 0.2 * generator.random(shape)
    return (values * (high - low) + low).astype(kind)


def window(values):
    """The window of a channel for which the file has none: one of a thousand values lies beyond each end."""
    values = numpy.sort(values[numpy.isfinite(values)].astype("f8"), axis=None)
    last = len(values) - 1
    return [float(values[last // 1000]), float(values[last - last // 1000])]


def blend(planes, layers):
    """Adds up colours: a layer is the number of a plane, a colour, and the values shown as black and in that colour."""
    height, width = planes[0].shape
    sum_of = numpy.zeros((height, width, 3))
    for number, colour, (black, white) in layers:
        values = numpy.clip(planes[number].astype("f8") - black, 0, white - black)
        for at in range(3):
            part = int(colour[2 * at : 2 * at + 2], 16)
            seen = numpy.floor(values * part / (white - black) + 0.5)
            sum_of[..., at] += numpy.nan_to_num(seen)
    return numpy.minimum(sum_of, 255).astype("u1")


class Cases:
    """The renderings of one file for a test: NAME.json lists them, each with a file of its pixels."""

    def __init__(self, path, levels, channels):
        """`levels` are read by another program, in the order t, c, z, y, x; `channels` are the expected ones."""
        self.path, self.levels, self.channels, self.list = path, levels, channels, []

    def add(self, layers, z=0, t=0, is_default=False):
        for level, values in enumerate(self.levels):
            pixels = blend([values[t, c, z] for c in range(values.shape[1])], layers)
            name = f"{self.path}-{len(self.list)}-{level}.rgb"
            with open(name, "wb") as file:
                file.write(pixels.tobytes())
            of = {"layers": layers, "z": z, "t": t, "level": level, "default": is_default, "pixels": name}
            self.list.append(of | {"size": [pixels.shape[1], pixels.shape[0]]})

    def every(self, z=None):
        """The default, each plane of each channel alone, and all channels in other colours."""
        times, _, depth = self.levels[0].shape[:3]
        z = depth // 2 if z is None else z
        shown = [number for number, channel in enumerate(self.channels) if channel["shown"]]
        layer = lambda number: [number, self.channels[number]["color"], self.channels[number]["window"]]
        self.add([layer(number) for number in shown], z=z, is_default=True)
        for number, (color, (black, white)) in enumerate((of["color"], of["window"]) for of in self.channels):
            span = white - black
            self.add([[number, color, [black + span / 4, white + span]]], z=number % depth, t=number % times)
        colours = ["ff8000", "0080ff", "10f020", "808080"]
        all_of = [[number, colours[number % 4], of["window"]] for number, of in enumerate(self.channels)]
        self.add(all_of, z=depth - 1, t=times - 1)
        self.add([])

    def colours(self):
        """Each plane of levels in the order t, z, y, x, samples, in colours or in grey."""
        times, depth = self.levels[0].shape[:2]
        for t, z in numpy.ndindex(times, depth):
            for level, values in enumerate(self.levels):
                pixels = numpy.broadcast_to(values[t, z, ..., :3], values.shape[2:4] + (3,))
                name = f"{self.path}-{len(self.list)}-{level}.rgb"
                with open(name, "wb") as file:
                    file.write(numpy.ascontiguousarray(pixels).tobytes())
                is_default = (t, z) == (0, depth // 2)
                of = {"layers": [], "z": z, "t": t, "level": level, "default": is_default, "pixels": name}
                self.list.append(of | {"size": [pixels.shape[1], pixels.shape[0]]})
        with open(f"{self.path}.json", "w") as file:
            json.dump({"channels": [], "planes": [depth, times], "cases": self.list}, file)

    def write(self):
        times, _, depth = self.levels[0].shape[:3]
        # The samples of the last channel, little endian.
        raw = self.levels[0][-1, -1, -1]
        with open(f"{self.path}.raw", "wb") as file:
            file.write(raw.astype(raw.dtype.newbyteorder("<")).tobytes())
        of = {"channels": self.channels, "planes": [depth, times], "cases": self.list}
        with open(f"{self.path}.json", "w") as file:
            json.dump(of, file)
