# SPDX-License-Identifier: Apache-2.0
"""Seeds with known violations that are not fixed yet: {seed: the defect}."""

KNOWN = {}
