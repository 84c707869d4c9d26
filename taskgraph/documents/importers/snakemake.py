"""What `snakemake --dag` and `snakemake --rulegraph` print: a task for each job, or rule, named by rule and wildcards.

Jobs that Snakemake drew with dashes are done already: they are noops all the same, so that the shape is whole.
"""

from collections import Counter

from taskgraph.documents.importers import dot
from taskgraph.documents.importers.shaping import Foreign, Imported, Reader, Shape, stand_in


def convert(foreign: Foreign) -> Imported:
    reader = Reader(foreign.source)
    graph = dot.read(foreign.text, reader)
    names = {node: _name(attributes.get("label", node)) for node, attributes in graph.nodes.items()}
    several = Counter(names.values())
    labels = {node: reader.label(name if several[name] == 1 else f"{name} #{node}") for node, name in names.items()}
    requires: dict[str, dict[str, None]] = {node: {} for node in graph.nodes}
    for before, after in graph.edges:
        if before != after:  # --rulegraph draws a rule whose jobs need each other so
            requires[after][labels[before]] = None
    shape = Shape()
    for node, label in labels.items():
        shape.tasks[label] = {"requires": list(requires[node]), "task": stand_in(None, None)}
        shape.places[label] = graph.lines[node]
    loops = sum(before == after for before, after in graph.edges)
    done = sum("dashed" in attributes.get("style", "") for attributes in graph.nodes.values())
    reader.note_count(loops, "One rule requires itself; that was left out.", "{} rules require themselves; left out.")
    reader.note_count(done, "One job was done already.", "{} jobs were done already.")
    return reader.shaped(shape)


def _name(label: str) -> str:
    rule, *wildcards = (part.strip() for part in label.split("\\n"))
    return f"{rule} ({', '.join(wildcards)})" if wildcards else rule
