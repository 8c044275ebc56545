"""Docstrings as prose: what each style loses, and that running text survives."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlm_lab.data.docstrings import paragraphs, prose

CASES = {
    "doctest": (
        """Return the sum of the numbers.

        >>> add(1, 2)
        3
        and so on and on

        The numbers may be of any type.
        """,
        ["Return the sum of the numbers.", "The numbers may be of any type."],
    ),
    "literal block": (
        """Open the file like this::

            with open(path) as file:
                text of the block is left out

        The file is closed at the end.
        """,
        ["Open the file like this:", "The file is closed at the end."],
    ),
    "fence": (
        """Call it with a number.

        ```python
        this is a line of words
        ```
        The result is a number too.
        """,
        ["Call it with a number.", "The result is a number too."],
    ),
    "directives": (
        """Compute the mean of it.

        .. math::

            this is a formula in words

        .. note:: The mean of nothing is not defined.
        .. versionadded:: 3.2
        .. deprecated:: 3.4
           Use the other function instead.
        """,
        ["Compute the mean of it.", "The mean of nothing is not defined.", "Use the other function instead."],
    ),
    "numpy sections": (
        """Sort the array in place.

        Parameters
        ----------
        axis : int, optional
            Axis along which to sort.
        kind : {'quick', 'heap'}
            The algorithm that is
            used for sorting.
        """,
        ["Sort the array in place.", "Axis along which to sort.", "The algorithm that is used for sorting."],
    ),
    "google sections": (
        """Load the model from disk.

        Args:
            path (str): Where the model lies.
            strict (bool, optional): Whether every key must
                be there: all of them.
            device: The device to put it on.

        Returns:
            The model that was loaded.
        """,
        [
            "Load the model from disk.",
            "Where the model lies.",
            "Whether every key must be there: all of them.",
            "The device to put it on.",
            "The model that was loaded.",
        ],
    ),
    "fields": (
        """Send the request to the host.

        :param str host: name of the host
        :type host: a long list of words
        :returns: what the host has answered
        """,
        ["Send the request to the host.", "name of the host", "what the host has answered"],
    ),
    "markup": (
        """Use :class:`~json.decoder.JSONDecoder` or ``json.loads`` with *care* and `x`, **always** [1]_.

        See `the manual <https://example.org>`_ and [the guide](https://example.org/x) for it.
        """,
        ["Use JSONDecoder or json.loads with care and x, always.", "See the manual and the guide for it."],
    ),
    "bullets": (
        """The kinds of it are:

        * the first kind, which
          is long
        * the second kind of it
        1. the third kind of it
        """,
        ["The kinds of it are:", "the first kind, which is long", "the second kind of it", "the third kind of it"],
    ),
    "tables": (
        """The table of the names:

        ======  =======
        some    words in here
        ======  =======

        This is behind the table.
        """,
        ["The table of the names:", "This is behind the table."],
    ),
    "code lines": (
        """Copy the data over.

        import numpy as np
        y = copy of the x
        for line in the lines:

        Then look at the data again.
        """,
        ["Copy the data over.", "Then look at the data again."],
    ),
    "heading": (
        """The title of the module
        =======================

        What the module is for.
        """,
        ["What the module is for."],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_prose(name: str) -> None:
    docstring, expected = CASES[name]
    assert prose(inspect.cleandoc(docstring)) == expected


@given(st.text(st.sampled_from("ab \n>.:`*_=-+|[](){}~") | st.characters()))
def test_any_text_is_read(text: str) -> None:
    for paragraph in paragraphs(text):
        assert paragraph.strip()
    prose(text)
