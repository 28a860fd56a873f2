"""Profiles of JAX and TensorFlow: XSpace files (`.xplane.pb`), and the time lines made of them."""

from __future__ import annotations

import re

from busfare.trace.readers import Format, RecordAgain
from busfare.trace.readers.xla import chrome, space

#: How an XSpace protobuf begins: with a plane, which begins with its number and its name.
XSPACE = re.compile(
    rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12[\x01-\x7f]"
    rb"(?:[^\x00-\x1f]{0,60}/(?:host|device):|Task Environment)"
)
#: What names a process in the time line that XLA's profiler makes, and TensorFlow's of old.
PROCESS = re.compile(rb'"(?:[\w.:-]{0,60} )?/(?:device:[A-Z]+:\d|host:CPU|job:\w)')


AGAIN = RecordAgain(gpu="`jax.profiler.trace` or `tf.profiler` where they find the GPU and CUPTI")
FORMATS = (
    Format(
        name="xla",
        title="JAX and TensorFlow (.xplane.pb, .trace.json.gz)",
        read=space.read,
        begins=XSPACE,
        suffixes=(".pb",),
        record_again=AGAIN,
    ),
    Format(
        name="xla",
        read=lambda source: chrome.read(source.path),
        json=PROCESS,
        suffixes=(".json",),
        record_again=AGAIN,
    ),
)
