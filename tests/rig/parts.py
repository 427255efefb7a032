# SPDX-License-Identifier: Apache-2.0
"""The K-th of N parts of anything that has a text: each text is in one of them, whatever others there are."""

import zlib


class Part:
    """Of `K/N', as SLUICE_SHARE has it."""

    def __init__(self, text):
        self.number, self.of = (int(n) for n in text.split("/"))
        if not 1 <= self.number <= self.of:
            raise ValueError("%s is not K/N with K from 1 to N" % text)

    def has(self, text):
        return zlib.crc32(text.encode()) % self.of == self.number - 1
