------------------------------- MODULE Policies -------------------------------
(***************************************************************************)
(* Failure policies of groups: in one graph some failures are passed on to *)
(* dependents, and others block the graph.  What is passed on, what blocks,*)
(* who waits for whom, and what a rerun by hand takes back.                *)
(*                                                                         *)
(* Each step is one commit under the etags of the rows that it reads: that *)
(* this is so is shown by Taskgraph.tla.  What is looked at here is every  *)
(* order of commits: ends of tasks, skips, tasks that are cancelled alone, *)
(* tasks that come in with an extension, reruns by hand, and recalls,      *)
(* which take a commit each.                                               *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Tasks, Requires,  \* Requires[t]: the tasks that t requires
    Passing,          \* the tasks whose failure is passed on, by their group or by the graph
    Always,           \* the tasks that run whatever becomes of what they require
    Late,             \* the tasks that an extension brings, each alone
    GraphPasses,      \* what the graph says: failures are passed on
    HandReruns,       \* how often a person asks for a rerun
    HandCancels       \* how often a person cancels a task that waits

CONSTANTS             \* rules; a mutated configuration switches one off
    OwnPolicy,        \* what becomes of a failure is up to the task that failed, not to its graph
    CountsApart,      \* failures that block are told from others in the counts of the graph row
    PassSkips,        \* a skip is passed on in every graph
    MarkWaiting,      \* one whose failure is passed on does not end before what it requires
    AskAgain,         \* one that was cancelled as it waited asks its condition before it runs after all
    RecallPassed,     \* a rerun takes back what was passed on, whatever the graph says
    LinkByOwn         \* new dependents count an end that was passed on, whatever the graph says

VARIABLES task, graph, hands, cancels
vars == <<task, graph, hands, cancels>>

(**************************** shapes of graphs ****************************)

\* a, b: two branches; c requires both; d requires a and runs whatever becomes of it; e comes late, and requires a and d.
Branches == [t \in Tasks |-> CASE t = "c" -> {"a", "b"} [] t = "d" -> {"a"} [] t = "e" -> {"a", "d"} [] OTHER -> {}]
\* a chain, and d requires its first and its last task.
Chain == [t \in Tasks |-> CASE t = "b" -> {"a"} [] t = "c" -> {"b"} [] t = "d" -> {"a", "c"} [] OTHER -> {}]

Ended == {"completed", "failed", "skipped"}
There == {t \in Tasks : task[t].there}
Below(t) == {d \in There : t \in Requires[d]}
Recalls(rows) == Cardinality({t \in Tasks : rows[t].due = "recall"})
Passes(t) == IF OwnPolicy THEN t \in Passing ELSE GraphPasses

Blocking(g) == IF CountsApart THEN (IF GraphPasses THEN g.apart ELSE g.failed - g.apart)
               ELSE IF GraphPasses THEN 0 ELSE g.failed

Met(t, row) == t \in Always \/ row.failed \cup row.skipped = {}

\* A row that may wait for nothing any more: it stands ready, or is to be skipped.
Settled(t, row) ==
    IF row.left # {} \/ row.state # "waits" \/ row.due \in {"recall", "ready"} THEN row
    ELSE IF Met(t, row) /\ ~row.marked THEN [row EXCEPT !.state = "ready"] ELSE [row EXCEPT !.due = "skip"]

\* The rows when t has ended so, and its dependents are counted down.
Heard(rows, t, end) ==
    [d \in Tasks |-> IF d \notin Below(t) \/ t \notin rows[d].left THEN rows[d]
                     ELSE Settled(d, [rows[d] EXCEPT !.left = @ \ {t},
                                                     !.failed = IF end = "failed" THEN @ \cup {t} ELSE @,
                                                     !.skipped = IF end = "skipped" THEN @ \cup {t} ELSE @])]

Told(g, t, rows) ==
    LET left == g.left \ {t}
    IN [g EXCEPT !.left = left,
                 !.state = IF left = {} /\ @ = "running" /\ Recalls(rows) = 0 THEN "finished" ELSE @]

\* t ends so, with this row: completed, skipped, or failed for good, which is passed on or blocks the graph.
End(t, row) ==
    LET rows == [task EXCEPT ![t] = row]
        passes == CASE row.state = "completed" -> TRUE
                    [] row.state = "skipped" -> PassSkips \/ GraphPasses
                    [] OTHER -> Passes(t)
        g1 == IF row.state # "failed" THEN graph
              ELSE [graph EXCEPT !.failed = @ + 1, !.apart = IF Passes(t) # GraphPasses THEN @ + 1 ELSE @]
        g2 == IF row.state = "failed" /\ ~passes /\ g1.state = "running" THEN [g1 EXCEPT !.state = "blocked"] ELSE g1
    IN /\ task' = IF passes THEN Heard(rows, t, row.state) ELSE rows
       /\ graph' = IF passes THEN Told(g2, t, rows) ELSE g2

NewRow(t, there) == [there |-> there, state |-> "waits", left |-> Requires[t], failed |-> {}, skipped |-> {},
                     due |-> "no", marked |-> FALSE]
Leaf(t) == \A d \in Tasks \ Late : t \notin Requires[d]

Init ==
    /\ task = [t \in Tasks |-> Settled(t, NewRow(t, t \notin Late))]
    /\ graph = [left |-> {t \in Tasks \ Late : Leaf(t)}, state |-> "running", failed |-> 0, apart |-> 0]
    /\ hands = HandReruns
    /\ cancels = HandCancels

Complete(t) ==
    /\ task[t].there /\ task[t].state = "ready"
    /\ End(t, [task[t] EXCEPT !.state = "completed"])
    /\ UNCHANGED <<hands, cancels>>

Fail(t) ==
    /\ task[t].there /\ task[t].state = "ready"
    /\ End(t, [task[t] EXCEPT !.state = "failed"])
    /\ UNCHANGED <<hands, cancels>>

Skip(t) ==
    /\ task[t].due = "skip"
    /\ End(t, [task[t] EXCEPT !.state = IF @ # "waits" THEN @ ELSE IF task[t].marked THEN "failed" ELSE "skipped",
                              !.due = "no", !.marked = FALSE])
    /\ UNCHANGED <<hands, cancels>>

\* A task that waits is cancelled alone.
Cancel(t) ==
    /\ cancels > 0 /\ task[t].there /\ task[t].state = "waits" /\ ~task[t].marked
    /\ cancels' = cancels - 1
    /\ IF Passes(t) /\ MarkWaiting
       THEN task' = [task EXCEPT ![t].marked = TRUE] /\ UNCHANGED graph
       ELSE End(t, [task[t] EXCEPT !.state = "failed", !.due = IF @ = "recall" THEN @ ELSE "no"])
    /\ UNCHANGED hands

Extend(t) ==
    /\ t \in Late /\ ~task[t].there /\ graph.state \in {"running", "blocked"}
    /\ LET heard == {q \in Requires[t] : task[q].state \in {"completed", "skipped"}
                        \/ (task[q].state = "failed" /\ IF LinkByOwn THEN Passes(q) ELSE GraphPasses)}
           row == [NewRow(t, TRUE) EXCEPT !.left = Requires[t] \ heard,
                                          !.failed = {q \in heard : task[q].state = "failed"},
                                          !.skipped = {q \in heard : task[q].state = "skipped"}]
       IN task' = [task EXCEPT ![t] = Settled(t, row)]
    /\ graph' = [graph EXCEPT !.left = @ \cup {t}]
    /\ UNCHANGED <<hands, cancels>>

(******************************** reruns **********************************)

\* One failure less: with the last that blocks, a blocked graph runs again.
Less(g, t, was) ==
    IF was # "failed" THEN g
    ELSE LET l == [g EXCEPT !.failed = @ - 1, !.apart = IF Passes(t) # GraphPasses THEN @ - 1 ELSE @]
         IN IF l.state = "blocked" /\ Blocking(l) = 0 THEN [l EXCEPT !.state = "running"] ELSE l

Rerun(t) ==
    /\ hands > 0 /\ task[t].there /\ task[t].state \in Ended
    /\ hands' = hands - 1
    /\ LET row == task[t]
           counted == row.state # "failed" \/ row.due = "recall" \/ (IF RecallPassed THEN Passes(t) ELSE GraphPasses)
           waits == [row EXCEPT !.state = "waits", !.marked = FALSE, !.due = IF counted THEN "recall" ELSE "no"]
           ready == [waits EXCEPT !.state = "ready"]
       IN task' = [task EXCEPT ![t] = IF counted \/ row.left # {} THEN waits ELSE IF AskAgain THEN Settled(t, waits) ELSE ready]
    /\ graph' = LET g == IF graph.state = "finished" THEN [graph EXCEPT !.state = "running"] ELSE graph
                IN Less(g, t, task[t].state)
    /\ UNCHANGED cancels

\* The recall of t: what has counted its end waits for it again, and is reset where it has gone on.
Recall(t) ==
    /\ task[t].due = "recall"
    /\ LET back == {d \in Below(t) : t \notin task[d].left}
           gone == {d \in back : task[d].state # "waits"}
           reset(d) == [task[d] EXCEPT !.left = @ \cup {t}, !.failed = @ \ {t}, !.skipped = @ \ {t}, !.state = "waits",
                                       !.due = IF d \in gone THEN "recall" ELSE IF @ = "recall" THEN @ ELSE "no",
                                       !.marked = IF d \in gone THEN FALSE ELSE @]
           failed == {d \in gone : task[d].state = "failed"}
           apart == {d \in failed : Passes(d) # GraphPasses}
           g == [graph EXCEPT !.left = IF t \in Late \/ Leaf(t) THEN @ \cup {t} ELSE @,
                              !.failed = @ - Cardinality(failed), !.apart = @ - Cardinality(apart)]
       IN /\ task' = [d \in Tasks |-> IF d = t THEN [task[t] EXCEPT !.due = IF task[t].left = {} THEN "ready" ELSE "no"]
                                      ELSE IF d \in back THEN reset(d) ELSE task[d]]
          /\ graph' = IF g.state = "blocked" /\ failed # {} /\ Blocking(g) = 0 THEN [g EXCEPT !.state = "running"] ELSE g
    /\ UNCHANGED <<hands, cancels>>

Begin(t) ==
    /\ task[t].due = "ready" /\ Recalls(task) = 0
    /\ task' = [task EXCEPT ![t] = IF @.state # "waits" THEN [@ EXCEPT !.due = "no"] ELSE Settled(t, [@ EXCEPT !.due = "no"])]
    /\ UNCHANGED <<graph, hands, cancels>>

\* A recall that ended after the last count-down has the graph looked at once more.
Finish ==
    /\ graph.left = {} /\ graph.state = "running" /\ Recalls(task) = 0
    /\ graph' = [graph EXCEPT !.state = "finished"]
    /\ UNCHANGED <<task, hands, cancels>>

Moves == Finish \/ \E t \in Tasks : Complete(t) \/ Fail(t) \/ Skip(t) \/ Recall(t) \/ Begin(t)
Next == Moves \/ \E t \in Tasks : Rerun(t) \/ Cancel(t) \/ Extend(t)
Spec == Init /\ [][Next]_vars /\ WF_vars(Moves)

(******************************** promises ********************************)

Quiet == Recalls(task) = 0
Failed == {t \in There : task[t].state = "failed"}
Blocks(t) == t \notin Passing
RECURSIVE Above(_)
Above(t) == Requires[t] \cup UNION {Above(q) : q \in Requires[t]}
Over(t) == task[t].state \in {"completed", "skipped"} \/ (task[t].state = "failed" /\ ~Blocks(t))

TypeOK ==
    /\ graph.state \in {"running", "blocked", "finished"} /\ graph.failed = Cardinality(Failed)
    /\ \A t \in Tasks : task[t].state \in Ended \cup {"waits", "ready"} /\ task[t].due \in {"no", "skip", "recall", "ready"}

\* Blocked as long as a task has failed whose failure is not passed on, and only then.
F1 == (graph.state = "blocked") <=> (\E t \in Failed : Blocks(t))

\* Finished: every task has ended, and no failure is left that blocks.
F2 == graph.state = "finished" => \A t \in There : Over(t)

\* What a task knows of its requirements is how they have ended, and it waits for one whose failure blocks.
F3 == Quiet => \A d \in There : \A q \in Requires[d] :
        /\ q \notin task[d].left => Over(q)
        /\ q \in task[d].failed <=> q \notin task[d].left /\ task[q].state = "failed"
        /\ q \in task[d].skipped <=> q \notin task[d].left /\ task[q].state = "skipped"

\* A task has begun only with requirements that ended as it asks, and is skipped only where they did not.
F4 == Quiet => \A t \in There :
        /\ task[t].state \in {"ready", "completed"} => task[t].left = {} /\ Met(t, task[t])
        /\ task[t].state = "skipped" => ~Met(t, task[t])

\* Whoever has counted the end of a task may begin: nothing above it runs, or is still to run.
F5 == Quiet => \A d \in There : \A q \in Requires[d] \ task[d].left : \A u \in Above(q) : Over(u)

\* In the end the graph is finished, or stands blocked.
F6 == <>[](graph.state # "running")

NeverBoth == ~(graph.state = "blocked" /\ \E t \in Failed : ~Blocks(t))
NeverPassed == ~(graph.state = "finished" /\ Failed # {})
NeverUnblocked == ~(graph.state = "running" /\ hands < HandReruns /\ \E t \in There : Blocks(t) /\ task[t].state = "completed")
NeverSkippedAfter == ~(hands < HandReruns /\ \E t \in There : Blocks(t) /\ task[t].due = "skip" /\ task[t].left = {})
===============================================================================
