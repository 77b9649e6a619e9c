"""The code of the README compiles."""

import os
import re
import unittest

from guard import ROOT, semel


class TestReadme(unittest.TestCase):
    def test_code_compiles_and_names_exist(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
            blocks = re.findall(r"^```python\n(.*?)^```$", f.read(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 3)
        for block in blocks:
            compile(block, "README.md", "exec")
            for name in re.findall(r"\bsemel\.(\w+)", block):
                self.assertTrue(hasattr(semel, name), name)


if __name__ == "__main__":
    unittest.main()
