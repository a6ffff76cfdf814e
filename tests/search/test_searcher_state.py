"""States of searchers come back as they were saved, and what is none is refused."""

import numpy as np
import pytest

from hlotune.search.searchers.searcher_state import packed, unpacked


def test_arrays_come_back() -> None:
    rows = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.testing.assert_array_equal(unpacked(packed({"rows": rows}))["rows"], rows)


@pytest.mark.parametrize("state", [b"", b"PK", b"no state"])
def test_what_is_no_state_is_refused(state: bytes) -> None:
    with pytest.raises(ValueError, match="expected the saved state of a searcher, got b'"):
        unpacked(state)


def test_a_state_with_any_byte_spoiled_is_refused_in_words_or_read() -> None:
    whole, refused = packed({"rows": np.arange(64, dtype=np.int32)}), 0
    for at in range(len(whole)):
        try:
            unpacked(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        except ValueError as error:
            assert "expected the saved state of a searcher" in str(error)
            refused += 1
    assert refused > len(whole) // 2
