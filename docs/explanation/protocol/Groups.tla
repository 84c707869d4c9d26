-------------------------------- MODULE Groups --------------------------------
(***************************************************************************)
(* Groups that need k of n: what is counted, what is decided and when, who *)
(* hears it, and what a rerun takes back.                                  *)
(*                                                                         *)
(* Each step is one commit under the etags of the rows that it reads: that *)
(* this is so is shown by Taskgraph.tla.  What is looked at here is every  *)
(* order of commits: ends of members, joins that fire, the rest that is    *)
(* cancelled, reruns by hand, and recalls, which take a commit each.       *)
(*                                                                         *)
(* The group's tally (`join:group-<id>:all`) has its members below it, of  *)
(* which some are counted by a piece of it; the decision (`…:done`) hears  *)
(* the tally; the task x requires the group; the graph waits for x and for *)
(* the tally.                                                              *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Members,    \* the tasks that are counted
    InPiece,    \* those that a piece of the tally counts
    Needs,      \* so many are to complete
    Waits,      \* dependents hear the decision when all members have ended (then: wait)
    Cancels,    \* what is left is cancelled then (rest: cancel)
    HandReruns  \* how often a person asks for a rerun

CONSTANTS            \* rules; a mutated configuration switches one off
    CountOnce,       \* a member is counted where it is crossed off, and there alone
    DrainAwaited,    \* the graph waits for the tally, too
    TakeBack,        \* a decision that the counts do not bear any more is taken back
    QuietWhileDue,   \* nothing is told while a recall of the tally or of the decision is to come
    TellAgain,       \* the end of such a recall looks whether there is something to tell
    SpareRerun,      \* what was rerun by hand is not cancelled with the rest
    OwnEnding        \* what is told is the decision, and not how members ended

VARIABLES member, piece, tally, decision, x, graph, hands, breach
vars == <<member, piece, tally, decision, x, graph, hands, breach>>

N == Cardinality(Members)
Direct == Members \ InPiece
Resolved == {"completed", "failed"}
Recalls == Cardinality({m \in Members : member[m].due}) + (IF tally.due THEN 1 ELSE 0)
           + (IF decision.due THEN 1 ELSE 0) + (IF x.due THEN 1 ELSE 0)

Verdict(t) == IF t.ok >= Needs THEN "ok" ELSE IF N - t.bad < Needs THEN "failed" ELSE "open"
Drained(t) == t.left = {}

Init ==
    /\ member = [m \in Members |-> [state |-> "open", due |-> FALSE, by |-> 0]]
    /\ piece = [left |-> InPiece, bad |-> {}, fired |-> InPiece = {}]
    /\ tally = [left |-> Direct \cup (IF InPiece = {} THEN {} ELSE {"piece"}), bads |-> {},
                ok |-> 0, bad |-> 0, fired |-> FALSE, due |-> FALSE, rest |-> FALSE]
    /\ decision = [told |-> "no", ready |-> FALSE, fired |-> FALSE, due |-> FALSE]
    /\ x = [heard |-> "no", state |-> "waits", due |-> FALSE]
    /\ graph = [left |-> {"tally", "x"}, state |-> "running"]
    /\ hands = HandReruns
    /\ breach = {}

\* What a tally comes to after a change: the rest begins to be cancelled, and the decision is told.
Rest(t) == [t EXCEPT !.rest = @ \/ (Cancels /\ Verdict(t) # "open" /\ ~Drained(t))]
MayTell(t, d) ==
    /\ d.told = "no" /\ Verdict(t) # "open"
    /\ Waits => Drained(t)
    /\ QuietWhileDue => ~t.due /\ ~d.due
\* A row whose recall is to come does not get ready when it is counted down.
Told(t, d) == IF MayTell(t, d) THEN [d EXCEPT !.told = IF OwnEnding THEN Verdict(t) ELSE IF t.bad > 0 THEN "failed" ELSE "ok",
                                              !.ready = ~d.due]
              ELSE d
Stands(t, d) == d.told = "no" \/ (d.told = Verdict(t) /\ ~Waits)

\* A member has ended: it is crossed off where it is named, and counted in the same commit.
Counted(m, outcome) ==
    LET row == IF m \in InPiece THEN piece.left ELSE tally.left
        counts == IF CountOnce THEN m \in row ELSE TRUE
        t == [tally EXCEPT !.ok = @ + (IF counts /\ outcome = "completed" THEN 1 ELSE 0),
                           !.bad = @ + (IF counts /\ outcome = "failed" THEN 1 ELSE 0),
                           !.left = @ \ {m},
                           !.bads = IF outcome = "failed" /\ m \notin InPiece THEN @ \cup {m} ELSE @]
    IN  /\ piece' = IF m \in InPiece
                    THEN [piece EXCEPT !.left = @ \ {m}, !.bad = IF outcome = "failed" THEN @ \cup {m} ELSE @]
                    ELSE piece
        /\ tally' = Rest(t)
        /\ decision' = Told(t, decision)

End(m) ==
    /\ member[m].state = "open"
    /\ \E outcome \in Resolved :
        /\ member' = [member EXCEPT ![m].state = outcome]
        /\ Counted(m, outcome)
    /\ UNCHANGED <<x, graph, hands, breach>>

\* The same message once more: level-triggered, so it may come at any time after.
Again(m) ==
    /\ member[m].state \in Resolved /\ ~member[m].due
    /\ ~CountOnce  \* with the rule it changes nothing
    /\ tally.ok + tally.bad <= N
    /\ Counted(m, member[m].state)
    /\ UNCHANGED <<member, x, graph, hands, breach>>

CancelRest(m) ==
    /\ tally.rest /\ ~tally.fired /\ member[m].state = "open"
    /\ SpareRerun => member[m].by = 0
    /\ member' = [member EXCEPT ![m].state = "failed"]
    /\ Counted(m, "failed")
    /\ breach' = breach \cup (IF member[m].by > 0 THEN {"K6"} ELSE {})
    /\ UNCHANGED <<x, graph, hands>>

FirePiece ==
    /\ piece.left = {} /\ ~piece.fired
    /\ piece' = [piece EXCEPT !.fired = TRUE]
    /\ LET t == [tally EXCEPT !.left = @ \ {"piece"}]
       IN tally' = t /\ decision' = Told(t, decision)
    /\ UNCHANGED <<member, x, graph, hands, breach>>

Ended(left) == IF left = {} /\ Recalls = 0 THEN "finished" ELSE "running"

FireTally ==
    /\ Drained(tally) /\ ~tally.fired /\ ~tally.due
    /\ tally' = [tally EXCEPT !.fired = TRUE, !.rest = FALSE]
    /\ decision' = Told(tally, decision)
    /\ graph' = IF DrainAwaited THEN [left |-> graph.left \ {"tally"}, state |-> Ended(graph.left \ {"tally"})] ELSE graph
    /\ UNCHANGED <<member, piece, x, hands, breach>>

FireDecision ==
    /\ decision.ready
    /\ decision' = [decision EXCEPT !.fired = TRUE, !.ready = FALSE]
    /\ x' = [x EXCEPT !.heard = decision.told]
    /\ UNCHANGED <<member, piece, tally, graph, hands, breach>>

\* x runs, or is skipped, by what it has heard.
EndX ==
    /\ x.heard # "no" /\ x.state = "waits" /\ ~x.due /\ Recalls = 0
    /\ x' = [x EXCEPT !.state = IF x.heard = "ok" THEN "ran" ELSE "skipped"]
    /\ LET left == graph.left \ (IF DrainAwaited THEN {"x"} ELSE {"x", "tally"})
       IN graph' = [left |-> left, state |-> Ended(left)]
    /\ UNCHANGED <<member, piece, tally, decision, hands, breach>>

(******************************** reruns **********************************)

Rerun(m) ==
    /\ hands > 0 /\ member[m].state \in Resolved
    /\ hands' = hands - 1
    /\ member' = [member EXCEPT ![m] = [state |-> "reset", due |-> TRUE, by |-> @.by + 1]]
    /\ graph' = [graph EXCEPT !.state = "running"]
    /\ UNCHANGED <<piece, tally, decision, x, breach>>

\* The recall of a member: its piece, the tally, and the counts, in one commit.
RecallMember(m) ==
    /\ member[m].due
    /\ LET bad == m \in piece.bad \/ m \in tally.bads
           t1 == [tally EXCEPT !.left = @ \cup (IF m \in InPiece THEN (IF piece.fired THEN {"piece"} ELSE {}) ELSE {m}),
                               !.ok = @ - (IF bad THEN 0 ELSE 1), !.bad = @ - (IF bad THEN 1 ELSE 0), !.bads = @ \ {m}]
           back == TakeBack /\ ~Stands(t1, decision)
       IN  /\ tally' = [t1 EXCEPT !.fired = FALSE, !.due = @ \/ tally.fired \/ back,
                                  !.rest = IF tally.fired \/ back THEN FALSE ELSE @]
    /\ piece' = IF m \in InPiece THEN [left |-> piece.left \cup {m}, bad |-> piece.bad \ {m}, fired |-> FALSE] ELSE piece
    /\ member' = [member EXCEPT ![m].due = FALSE]
    /\ UNCHANGED <<decision, x, graph, hands, breach>>

\* The recall of the tally: the graph waits again; the decision is taken back unless it stands.
RecallTally ==
    /\ tally.due
    /\ LET t == [tally EXCEPT !.due = FALSE]
           takes == TakeBack /\ ~Stands(tally, decision)
           d == IF takes THEN [told |-> "no", ready |-> FALSE, fired |-> FALSE, due |-> decision.due \/ decision.fired] ELSE decision
       IN  /\ tally' = IF TellAgain THEN Rest(t) ELSE t
           /\ decision' = IF TellAgain THEN Told(t, d) ELSE d
    /\ graph' = [graph EXCEPT !.left = @ \cup {"tally"}]
    /\ UNCHANGED <<member, piece, x, hands, breach>>

RecallDecision ==
    /\ decision.due
    /\ LET d == [decision EXCEPT !.due = FALSE]
       IN decision' = IF TellAgain THEN Told(tally, d) ELSE d
    /\ x' = [x EXCEPT !.heard = "no", !.state = "waits", !.due = @ \/ x.state # "waits"]
    /\ UNCHANGED <<member, piece, tally, graph, hands, breach>>

RecallX ==
    /\ x.due
    /\ x' = [x EXCEPT !.due = FALSE]
    /\ graph' = [graph EXCEPT !.left = @ \cup {"x"}]
    /\ UNCHANGED <<member, piece, tally, decision, hands, breach>>

Begin(m) ==
    /\ member[m].state = "reset" /\ Recalls = 0
    /\ member' = [member EXCEPT ![m].state = "open"]
    /\ UNCHANGED <<piece, tally, decision, x, graph, hands, breach>>

\* A recall that ended after the last count-down has the graph looked at once more.
Finish ==
    /\ graph.left = {} /\ graph.state = "running" /\ Recalls = 0
    /\ graph' = [graph EXCEPT !.state = "finished"]
    /\ UNCHANGED <<member, piece, tally, decision, x, hands, breach>>

Moves == \/ \E m \in Members : End(m) \/ CancelRest(m) \/ RecallMember(m) \/ Begin(m)
         \/ FirePiece \/ FireTally \/ FireDecision \/ EndX \/ RecallTally \/ RecallDecision \/ RecallX \/ Finish
Next == Moves \/ \E m \in Members : Rerun(m) \/ Again(m)
Spec == Init /\ [][Next]_vars /\ WF_vars(Moves)

(******************************** promises ********************************)

Counted_(m) == IF m \in InPiece THEN m \notin piece.left ELSE m \notin tally.left
Done(outcome) == Cardinality({m \in Members : member[m].state = outcome})
Quiet == Recalls = 0

TypeOK ==
    /\ tally.ok \in 0 .. N + 1 /\ tally.bad \in 0 .. N + 1
    /\ decision.told \in {"no", "ok", "failed"}
    /\ x.state \in {"waits", "ran", "skipped"} /\ graph.state \in {"running", "finished"}

\* The counts are those of the members that have ended, and every one is counted once.
K1 == Quiet => tally.ok = Done("completed") /\ tally.bad = Done("failed")

\* What was told is what the counts say.
K2 == Quiet /\ decision.told # "no" => decision.told = Verdict(tally)

\* With `wait` nothing is told before all members have ended.
K3 == Quiet /\ Waits /\ decision.told # "no" => \A m \in Members : member[m].state \in Resolved

\* x has run, or was skipped, only by the decision that stands.
K4 == Quiet /\ x.state # "waits" => x.heard = decision.told /\ (x.state = "ran" <=> x.heard = "ok")

\* Finished: every member and x have ended.
K5 == graph.state = "finished" => x.state # "waits" /\ \A m \in Members : member[m].state \in Resolved

\* What a person has asked for once more is not cancelled with the rest.
K6 == "K6" \notin breach

\* What is decided has been told.
K8 == Quiet /\ Verdict(tally) # "open" /\ (Waits => Drained(tally) /\ tally.fired) => decision.told # "no"

\* In the end the graph is finished.
K7 == <>[](graph.state = "finished")

NeverEarly == ~(decision.told = "ok" /\ \E m \in Members : member[m].state = "open")
NeverFailed == decision.told # "failed"
NeverTakenBack == ~(decision.told = "no" /\ x.due)
NeverStands == ~(decision.fired /\ Quiet /\ \E m \in Members : member[m].state = "open" /\ member[m].by > 0)
===============================================================================
