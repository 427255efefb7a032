# SPDX-License-Identifier: Apache-2.0
"""The exit codes that a failed call can lead to: EXIT STATUS of the manuals, by what the call is for."""

import re

SHORTAGE, MISSING = {"ENOMEM", "EMFILE", "ENFILE"}, {"ENOENT", "ENOTDIR"}
SHORT_OF = 22       # memory, descriptors or processes
NO_SOURCE, START, SOCKET, FILE, PROTOCOL, SOME, VANISHED, TIMEOUT, CONNECT, INTEGRITY, TRANSPORT, LOST = 3, 5, 10, 11, 12, 23, 24, 30, 35, 41, 43, 44

# The first pattern that a site matches. Files:
FILES = {FILE, SOME}
# A connection, while it is made or later:
CONNECTION = {SOCKET, CONNECT, LOST}
# A process of ours that ends, or never begins:
PROCESS = {START, LOST}
BY_SITE = [(re.compile(pattern), codes) for pattern, codes in (
    (r":(EVP_CipherFinal_ex|ZSTD_decompressDCtx)", {INTEGRITY}),
    (r"find_source:lstat64|find_pattern:glob64", FILES | {NO_SOURCE}),
    # A table without random numbers cannot be made.
    (r":getrandom#", FILES | PROCESS | CONNECTION | {SHORT_OF}),
    (r"^(copy|base/table)|:(pread|pwrite|preadv|pwritev|fsync|fdatasync|ftruncate)", FILES),
    (r"^(cmd/(output|bench)|session/channel/key|base/(text_file|dir))", FILES | PROCESS),
    (r"^cmd/cli/", {FILE, CONNECT} | PROCESS),
    # A host without an id counts as another one, and an adapter that is not found is none.
    (r"^host/|^base/io.c:read_full", FILES | PROCESS | CONNECTION | {TRANSPORT}),
    (r"^cmd/end/tunnel", CONNECTION | PROCESS | {TIMEOUT}),
    (r"^cmd/.*:(printf|puts|putchar|fputs|fputc|fwrite|fflush|__fprintf_chk|fprintf)#", {FILE} | CONNECTION),
    (r"^cmd/(process|serve|end|rd\w+\.c)", {FILE} | PROCESS | CONNECTION),
    (r"^cmd/", PROCESS | CONNECTION),
    (r"^lane/(head|tcp)", CONNECTION | {TRANSPORT}),
    (r"^lane/verbs|^simverbs:", {CONNECT, TRANSPORT, LOST}),
    (r"^lane/cipher.c:has_algorithm", {TRANSPORT}),
    (r"^session/channel/tls", CONNECTION | PROCESS | {PROTOCOL, TIMEOUT}),
    (r"^session/c(hannel|onnect)/", CONNECTION | PROCESS | {TIMEOUT}),
    (r"^base/tos", CONNECTION),
    (r"^base/(io|fd_pass|random)", FILES | PROCESS | CONNECTION),
    ("", set()))]
# They report a shortage with other numbers.
SHORTAGES = re.compile(r":glob64#.* 1|:signalfd#.* ENODEV|:(pthread_create|fork|clone|mmap64|mlock|madvise)#.* EAGAIN|:epoll_ctl#.* ENOSPC|:eventfd#.* ENODEV|:ZSTD_\w+#.* -64")


def fitting_codes(point, scenario):
    """The exit codes that fit a failure of the point."""
    codes = set(next(codes for pattern, codes in BY_SITE if pattern.search(point.site)))
    if point.kind in SHORTAGE or SHORTAGES.search("%s %s" % (point.site, point.kind)):
        codes.add(SHORT_OF)
    if point.kind in MISSING and re.match(r"copy/(walk|source|measure)/", point.site):
        codes |= {NO_SOURCE, VANISHED}
    return codes | scenario.also
