-------------------------------- MODULE Shapes --------------------------------
(* Small graphs for the configurations: what a .cfg cannot write down itself. *)
EXTENDS Taskgraph

Budget(set, number) == [task \in set |-> number]
NoOrder == << >>
Everybody == Permutations(Handlers) \cup Permutations(Workers)  \* for safety only: liveness tells actors apart

SingleTasks == {"a"}
SingleRequires == [task \in {"a"} |-> {}]
SingleNoReruns == Budget({"a"}, 0)

PairTasks == {"a", "b"}
PairRequires == [task \in PairTasks |-> {}]
PairNoReruns == Budget(PairTasks, 0)

ChainTasks == {"a", "b"}
ChainRequires == ("a" :> {}) @@ ("b" :> {"a"})
ChainNoReruns == Budget(ChainTasks, 0)
ChainOneRerun == ("a" :> 1) @@ ("b" :> 0)

JoinTasks == {"a", "b", "c"}
JoinRequires == ("a" :> {}) @@ ("b" :> {}) @@ ("c" :> {"a", "b"})
JoinNoReruns == Budget(JoinTasks, 0)
JoinOneRerun == ("a" :> 1) @@ ("b" :> 0) @@ ("c" :> 0)

DiamondTasks == {"a", "b", "c", "d"}
DiamondRequires == ("a" :> {}) @@ ("b" :> {"a"}) @@ ("c" :> {"a"}) @@ ("d" :> {"b", "c"})
DiamondNoReruns == Budget(DiamondTasks, 0)

\* One task, and an extension by two: `t` requires `a`, which may be running, and `u`, which is new as well.
Extension == {"t", "u"}
ExtensionRequires == ("a" :> {}) @@ ("t" :> {"a", "u"}) @@ ("u" :> {})
ExtensionNoReruns == Budget({"a", "t", "u"}, 0)
ExtensionInserts == <<"t", "u">>
ExtensionLinks == <<"a">>

\* One task, and an extension by a dependent of it.
Dependent == {"t"}
DependentRequires == ("a" :> {}) @@ ("t" :> {"a"})
DependentNoReruns == Budget({"a", "t"}, 0)
DependentInserts == <<"t">>

\* One task, and an extension by a task that has nothing to do with it.
Independent == {"t"}
IndependentRequires == ("a" :> {}) @@ ("t" :> {})

\* Two tasks, and an extension by one that requires both.
BothRequires == ("a" :> {}) @@ ("b" :> {}) @@ ("t" :> {"a", "b"})
BothNoReruns == Budget({"a", "b", "t"}, 0)
BothLinks == <<"a", "b">>
===============================================================================
