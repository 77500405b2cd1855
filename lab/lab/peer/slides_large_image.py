"""Tiles and regions by large_image, as a WSGI application for gunicorn. A peer of the experiment `slides`.

/NAME/UP/COLUMN/ROW.jpg: a tile of the slide NAME in the directory $SLIDES, UP levels above its largest one
/NAME/UP/COLUMN/ROW.jpg?c=NUMBER:COLOUR:BLACK-WHITE,...: the same of a slide with channels, in these colours
/NAME/region/X,Y,WIDTH,HEIGHT/ACROSS,DOWN.jpg: a part of it, scaled

JPEG of the quality $QUALITY. A slide is opened when it is first asked for, and stays open.
"""

import functools
import os
import re
import threading
import urllib.parse

import large_image

SLIDES = os.environ.get("SLIDES", ".")
QUALITY = int(os.environ.get("QUALITY", "80"))
TILE = re.compile(r"/([^/]+)/(\d+)/(\d+)/(\d+)\.jpg")
REGION = re.compile(r"/([^/]+)/region/(\d+),(\d+),(\d+),(\d+)/(\d+),(\d+)\.jpg")
lock = threading.Lock()


@functools.lru_cache(maxsize=8)
def opened(name, channels=None):
    path = os.path.join(SLIDES, name)
    return large_image.open(path, encoding="JPEG", jpegQuality=QUALITY, **styled(channels))


def styled(channels):
    if not channels:
        return {}
    bands = []
    for layer in channels.split(","):
        number, colour, window = layer.split(":")
        black, white = map(int, window.split("-"))
        bands.append({"frame": int(number), "palette": ["#000000", f"#{colour}"], "min": black, "max": white})
    return {"style": {"bands": bands}}


def source_of(name, channels=None):
    with lock:
        return opened(name, channels)


def image(path, channels):
    if found := TILE.fullmatch(path):
        name = found.group(1)
        up, column, row = map(int, found.groups()[1:])
        source = source_of(name, channels)
        return source.getTile(column, row, source.levels - 1 - up)
    if found := REGION.fullmatch(path):
        name = found.group(1)
        left, top, width, height, across, down = map(int, found.groups()[1:])
        region = {"left": left, "top": top, "width": width, "height": height, "units": "base_pixels"}
        data, _ = source_of(name).getRegion(
            region=region, output={"maxWidth": across, "maxHeight": down}, encoding="JPEG"
        )
        return data
    return None


def answer(start_response, status, kind, body):
    start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


def application(environ, start_response):
    try:
        query = urllib.parse.parse_qs(environ.get("QUERY_STRING", ""))
        body = image(environ["PATH_INFO"], query.get("c", [None])[0])
    except (OSError, large_image.exceptions.TileGeneralError) as error:
        return answer(start_response, "404 Not Found", "text/plain", f"{error}\n".encode())
    if body is None:
        return answer(start_response, "404 Not Found", "text/plain", b"no image\n")
    return answer(start_response, "200 OK", "image/jpeg", bytes(body))
