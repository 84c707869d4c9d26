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

\* Broken by every step that writes: shows that TLC looks at properties of steps while it exchanges actors.
Still == [][FALSE]_rows

(* What the tests expect to be reached, so that nothing holds for want of trying: each of these must be broken. *)
NeverFinished == rows[Graph].state # "finished"
NeverBlocked == rows[Graph].state # "blocked"
NeverRefused == rows[Request].state # "refused"
NeverExtended == rows[Request].state # "done"
NeverException == \A task \in Existing : rows[task].state # "exception"
NeverRerun == \A task \in Existing : rows[task].reruns = Reruns[task]
NeverRerunByHand == \A task \in Existing : rows[task].manual = 0
NeverRetried == \A task \in Existing : rows[task].retries = Retries
NeverOvertaken == \A w \in Workers : worker[w].pc = "claiming" => ~worker[w].stale
NeverZombie == \A w \in Workers : worker[w].pc = "running" => HoldsRun(w, worker[w].task)
NeverConflict == \A h \in Handlers :
    (handler[h].pc = "reading" /\ Unread(h) = {}) => (Decided(h).error \/ Decided(h).write = NoRows \/ ~Conflict(h))
NeverTwoAtOnce == \A g, h \in Handlers : g # h => handler[g].pc = "idle" \/ handler[h].pc = "idle"
\* Rows that were read contradict each other, though no moment of the store did.
NeverTorn == \A h \in Handlers : (handler[h].pc = "reading" /\ Unread(h) = {}) => ~Decided(h).error
\* Linked to a task that completed before, and one that completed in between accepting and linking.
NeverLinkedLate == ~(Open /\ \E task \in Tasks : Completed(task) /\ Linking(task) # {} /\ ~(Linking(task) \subseteq rows[task].dependents))
===============================================================================
