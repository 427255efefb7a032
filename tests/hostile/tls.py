# SPDX-License-Identifier: Apache-2.0
"""A TLS 1.3 client with a pre-shared key, on libssl, because the standard library has none. With the key of an
rdrecv it can send any bytes after the handshake."""

import ctypes
import select
import threading

ssl = ctypes.CDLL("libssl.so.3")
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_void_p, ctypes.c_char_p,
                            ctypes.POINTER(ctypes.c_char), ctypes.c_uint,
                            ctypes.POINTER(ctypes.c_char), ctypes.c_uint)
for name, result, arguments in [
        ("TLS_client_method", ctypes.c_void_p, []),
        ("SSL_CTX_new", ctypes.c_void_p, [ctypes.c_void_p]),
        ("SSL_CTX_free", None, [ctypes.c_void_p]),
        ("SSL_CTX_set_ciphersuites", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
        ("SSL_CTX_set_psk_client_callback", None, [ctypes.c_void_p, CALLBACK]),
        ("SSL_new", ctypes.c_void_p, [ctypes.c_void_p]),
        ("SSL_free", None, [ctypes.c_void_p]),
        ("SSL_set_fd", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
        ("SSL_key_update", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
        ("SSL_connect", ctypes.c_int, [ctypes.c_void_p]),
        ("SSL_read", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]),
        ("SSL_write", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]),
        ("SSL_export_keying_material", ctypes.c_int,
         [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t,
          ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int])]:
    function = getattr(ssl, name)
    function.restype, function.argtypes = result, arguments

LABEL = b"EXPORTER-sluice-lane"


class Refused(Exception):
    pass


class Client:
    """One thread may read while another writes; a lock makes them take turns."""

    def __init__(self, sock, key, identity=b"sluice:source:-",
                 suites=b"TLS_AES_128_GCM_SHA256"):
        self.sock, self.lock = sock, threading.Lock()
        self.callback = CALLBACK(self._psk)
        self.key, self.identity = key, identity
        self.ctx = ssl.SSL_CTX_new(ssl.TLS_client_method())
        ssl.SSL_CTX_set_ciphersuites(self.ctx, suites)
        ssl.SSL_CTX_set_psk_client_callback(self.ctx, self.callback)
        self.ssl = ssl.SSL_new(self.ctx)
        sock.settimeout(None)
        ssl.SSL_set_fd(self.ssl, sock.fileno())
        if ssl.SSL_connect(self.ssl) != 1:
            raise Refused("the handshake failed")

    def _psk(self, _ssl, _hint, identity, room, psk, psk_room):
        for i, byte in enumerate(self.identity + b"\0"):
            identity[i] = bytes([byte])
        for i, byte in enumerate(self.key):
            psk[i] = bytes([byte])
        return len(self.key)

    def secret(self):
        out = ctypes.create_string_buffer(32)
        if ssl.SSL_export_keying_material(self.ssl, out, 32, LABEL, len(LABEL), None, 0, 0) != 1:
            raise Refused("no secret")
        return out.raw

    def read(self):
        """The bytes received next, b"" at the end."""
        out = ctypes.create_string_buffer(65536)
        while True:
            if not select.select([self.sock], [], [], 0.02)[0]:
                continue
            with self.lock:
                # If only half a record has arrived, this waits for the rest.
                n = ssl.SSL_read(self.ssl, out, len(out))
            return out.raw[:n] if n > 0 else b""

    def write(self, data):
        at = 0
        while at < len(data):
            with self.lock:
                n = ssl.SSL_write(self.ssl, data[at:at + 16384], len(data[at:at + 16384]))
            if n <= 0:
                raise OSError("the TLS connection is broken")
            at += n

    def update_keys(self):
        """Updates the keys with the next bytes, and asks the other end to do the same."""
        with self.lock:
            ssl.SSL_key_update(self.ssl, 1)

    def close(self):
        self.sock.close()
