# SPDX-License-Identifier: Apache-2.0
"""Seeds whose violations are not mended yet, with what is wrong."""

KNOWN = {}
