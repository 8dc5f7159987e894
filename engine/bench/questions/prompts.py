"""Prompts that measurements and lessons share."""

from __future__ import annotations

# Code, since it is what drafts are best at; each is the beginning of a file that goes on in the same manner. An end within the
# code, so that `lab` goes on: behind a whole function, or a docstring that could be one, it ends the text.
PROMPTS = {
    "class": '''class Point:
    """A point in the plane."""

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def add(self, other):
        return Point(self.x + other.x, self.y + other.y)

    def sub(self, other):
''',
    "tests": """import unittest


class TestStack(unittest.TestCase):
    def test_push(self):
        stack = Stack()
        stack.push(1)
        self.assertEqual(stack.top(), 1)

    def test_pop(self):
        stack = Stack()
        stack.push(1)
        self.assertEqual(stack.pop(), 1)

    def test_""",
    "loop": '''def count_words(lines):
    """Return a dictionary from word to count."""
    counts = {}
    for line in lines:
        for word in line.split():
            if word not in counts:
                counts[word] = 0
            counts[word] += 1
    return counts


def count_letters(lines):
    """Return a dictionary from letter to count."""
    counts = {}
''',
}
