# SPDX-License-Identifier: Apache-2.0
"""Encrypted blocks, a second time ("Sealed wires" in docs/protocol.md), on libcrypto."""

import ctypes
import hashlib
import hmac
import struct

import wire

AES, CHACHA = 1, 2
TAG, HEAD = 16, 40
GET_TAG, SET_TAG = 0x10, 0x11

crypto = ctypes.CDLL("libcrypto.so.3")
for name, result, arguments in [
        ("EVP_aes_256_gcm", ctypes.c_void_p, []), ("EVP_chacha20_poly1305", ctypes.c_void_p, []),
        ("EVP_CIPHER_CTX_new", ctypes.c_void_p, []), ("EVP_CIPHER_CTX_free", None, [ctypes.c_void_p]),
        ("EVP_CipherInit_ex", ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p,
                                             ctypes.c_char_p, ctypes.c_int]),
        ("EVP_CipherUpdate", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int),
                                            ctypes.c_char_p, ctypes.c_int]),
        ("EVP_CipherFinal_ex", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)]),
        ("EVP_CIPHER_CTX_ctrl", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p])]:
    function = getattr(crypto, name)
    function.restype, function.argtypes = result, arguments


def choose(mine, peer):
    return next((kind for kind in (AES, CHACHA) if mine & peer & 1 << kind - 1), 0)


def hkdf(secret, salt, info):
    """32 bytes of HKDF-SHA256."""
    prk = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(prk, info + b"\1", hashlib.sha256).digest()


def transform(kind, key, number, head, data, tag=None):
    """Encrypts data and returns it with its tag, or, with a tag, decrypts it; None if the tag is wrong."""
    algorithm = crypto.EVP_aes_256_gcm() if kind == AES else crypto.EVP_chacha20_poly1305()
    ctx = crypto.EVP_CIPHER_CTX_new()
    out, got, n = ctypes.create_string_buffer(len(data) + TAG), ctypes.create_string_buffer(TAG), ctypes.c_int()
    try:
        nonce = bytes(4) + struct.pack("<Q", number)
        assert crypto.EVP_CipherInit_ex(ctx, algorithm, None, key, nonce, tag is None)
        assert crypto.EVP_CipherUpdate(ctx, None, n, head, len(head))
        if data:
            assert crypto.EVP_CipherUpdate(ctx, out, n, data, len(data))
        if tag is not None:
            assert crypto.EVP_CIPHER_CTX_ctrl(ctx, SET_TAG, TAG, tag)
            return out.raw[:len(data)] if crypto.EVP_CipherFinal_ex(ctx, got, n) else None
        assert crypto.EVP_CipherFinal_ex(ctx, got, n)
        assert crypto.EVP_CIPHER_CTX_ctrl(ctx, GET_TAG, TAG, got)
        return out.raw[:len(data)], got.raw
    finally:
        crypto.EVP_CIPHER_CTX_free(ctx)


class Cipher:
    """The first key of a wire."""

    def __init__(self, kind, key, lane, epoch, direction=1, number=0):
        self.kind = kind
        info = b"sluice block" + struct.pack("<BBHII", kind, direction, lane, epoch, number)
        self.key = hkdf(key.secret, key.nonces, info)

    def block(self, data, /, nonce=None, **values):
        """A block with its head, as wire.block(). nonce: another than its number."""
        head = wire.block_head(**{"len": len(data), "hash_low": 0, "hash_high": 0, **values})[:HEAD]
        number = values["number"] if nonce is None else nonce
        data, tag = transform(self.kind, self.key, number, head, data)
        low, high = struct.unpack("<QQ", tag)
        return wire.block_head(**{"len": len(data), "hash_low": low, "hash_high": high, **values}) + data

    def open(self, head, data):
        """The data of a block that arrived, whose head is these 64 bytes; None if its tag is wrong."""
        number = wire.parse_block_head(head)["number"]
        return transform(self.kind, self.key, number, head[:HEAD], data, head[HEAD:HEAD + TAG])
