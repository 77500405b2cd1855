"""Deep Zoom tiles by OpenSlide for Python, as a WSGI application for gunicorn. A peer of the experiment `slides`.

/SIDE/NAME_files/LEVEL/COLUMN_ROW.jpg: a tile of SIDE pixels of the slide NAME in the directory $SLIDES; JPEG of the
quality $QUALITY. A slide is opened when it is first asked for, and stays open.
"""

import functools
import io
import os
import re
import threading

import openslide
from openslide.deepzoom import DeepZoomGenerator

SLIDES = os.environ.get("SLIDES", ".")
QUALITY = int(os.environ.get("QUALITY", "80"))
TILE = re.compile(r"/(\d+)/([^/]+)_files/(\d+)/(\d+)_(\d+)\.jpg")
lock = threading.Lock()


@functools.lru_cache(maxsize=8)
def opened(name, side):
    slide = openslide.open_slide(os.path.join(SLIDES, name))
    return DeepZoomGenerator(slide, tile_size=side, overlap=0, limit_bounds=False)


def answer(start_response, status, kind, body):
    start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


def application(environ, start_response):
    found = TILE.fullmatch(environ["PATH_INFO"])
    if not found:
        return answer(start_response, "404 Not Found", "text/plain", b"no tile\n")
    side, name, level, column, row = found.groups()
    try:
        with lock:
            generator = opened(name, int(side))
        tile = generator.get_tile(int(level), (int(column), int(row)))
    except (OSError, ValueError, openslide.OpenSlideError) as error:
        return answer(start_response, "404 Not Found", "text/plain", f"{error}\n".encode())
    encoded = io.BytesIO()
    tile.save(encoded, "jpeg", quality=QUALITY)
    return answer(start_response, "200 OK", "image/jpeg", encoded.getvalue())
