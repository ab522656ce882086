"""Dictionaries, strings, classes, generators, exceptions, sorting, regular expressions, big integers."""
import collections
import re
import sys


class Node:
    def __init__(self, key):
        self.key, self.left, self.right = key, None, None

    def insert(self, key):
        node = self
        while True:
            side = "left" if key < node.key else "right"
            child = getattr(node, side)
            if child is None:
                setattr(node, side, Node(key))
                return
            node = child

    def walk(self):
        if self.left:
            yield from self.left.walk()
        yield self.key
        if self.right:
            yield from self.right.walk()


def tree(count):
    root, state = Node(500), 1
    for _ in range(count):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        root.insert(state % 100003)
    return sum(i * k for i, k in enumerate(root.walk())) % 1000000007


def words(path):
    counts = collections.Counter(re.findall(r"[a-z]{3,}", open(path, encoding="latin-1").read().lower()))
    return counts.most_common(5)


def errors(count):
    caught = 0
    for i in range(count):
        try:
            if i % 3 == 0:
                raise ValueError(i)
            {}[i]
        except (ValueError, KeyError):
            caught += 1
    return caught


def digits(count):
    q, r, t, k, n, l, out = 1, 0, 1, 1, 3, 3, []
    while len(out) < count:
        if 4 * q + r - t < n * t:
            out.append(n)
            q, r, n = 10 * q, 10 * (r - n * t), 10 * (3 * q + r) // t - 10 * n
        else:
            q, r, t, k, n, l = q * k, (2 * q + r) * l, t * l, k + 1, (q * (7 * k + 2) + r * l) // (t * l), l + 2
    return "".join(map(str, out))


scale = int(sys.argv[2]) if len(sys.argv) > 2 else 1
for _ in range(scale):
    print(tree(15000), words(sys.argv[1]), errors(60000), digits(350)[-20:])
