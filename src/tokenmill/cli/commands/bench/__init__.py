"""Measure kernels and models next to the limits of this machine, and compare two runs.

Each measurement prints a table; `--json FILE` writes the one document that `tokenmill bench compare` reads, `--plot`
draws the roofline with a point for each row.

**Examples**

- `tokenmill bench model smollm2-135m`
- `tokenmill bench kernels --format Q4_0 --json before.json`
- `tokenmill bench compare before.json after.json`
"""
