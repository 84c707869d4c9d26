------------------------------ MODULE Transfer ------------------------------
(* A graph goes from one store to another, and back (taskgraph.protocol.transfer, engine.transfer).
   Two stores; a graph row and some rows of tasks in each; commands that bring it over, a person who has it
   stay, and workers that go by rows which they read before. Each action is one call of a store; whoever has
   something in hand may be gone before the next one. *)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Rows,             \* numbers 1..n of the rows that are written again
    Movers,           \* calls of the command `transfer`
    Stayers,          \* calls of it with --stay
    Workers,          \* whatever else writes rows
    Departures,       \* how many times the graph may depart, in all
    Works,            \* how many commits workers may make, in all
    Crashes           \* how many calls may die

CONSTANTS             \* rules, each of which can be left out
    Sealing,          \* rows are sealed before they are copied
    ComeSealed,       \* rows come in sealed, and are opened once it is moved at its old store
    OwnToken,         \* it is moved by the token of the present departure alone
    VoidFirst,        \* one that stays gives its token up before its rows are opened
    WholeFirst,       \* it is moved when all of it has been seen there
    MovedFirst,       \* it lives there when it has been seen moved
    Fenced,           \* rows come in under the etag of the graph row there
    VoidOnly          \* what gives way there has come by a departure that is void

VARIABLES
    graph,            \* store -> the graph row
    row,              \* store -> number -> a row
    total,            \* number -> how many commits there were on this row, in whatever store
    mover, stayer, worker,
    departed, crashed

vars == <<graph, row, total, mover, stayer, worker, departed, crashed>>

Stores == {"a", "b"}
Other(s) == IF s = "a" THEN "b" ELSE "a"
N == Cardinality(Rows)

NoRow == [there |-> FALSE, sealed |-> FALSE, val |-> 0, etag |-> 0]
NoGraph == [state |-> "none", token |-> 0, arrival |-> 0, void |-> {}, whole |-> FALSE, copied |-> 0,
            received |-> FALSE, etag |-> 0]
Idle == [pc |-> "start", from |-> "a", token |-> 0, here |-> 0, there |-> 0, buffer |-> NoRow]

Init ==
    /\ graph = [s \in Stores |-> IF s = "a" THEN [NoGraph EXCEPT !.state = "live"] ELSE NoGraph]
    /\ row = [s \in Stores |-> [i \in Rows |-> IF s = "a" THEN [NoRow EXCEPT !.there = TRUE] ELSE NoRow]]
    /\ total = [i \in Rows |-> 0]
    /\ mover = [m \in Movers |-> Idle]
    /\ stayer = [p \in Stayers |-> Idle]
    /\ worker = [w \in Workers |-> [busy |-> FALSE, at |-> "a", i |-> 1, etag |-> 0]]
    /\ departed = 0
    /\ crashed = 0

----------------------------------------------------------------------------
(* Workers and handlers: they read a row, decide, and commit under its etag. They do not look at the graph row. *)

Look(w, s, i) ==
    /\ ~worker[w].busy
    /\ row[s][i].there /\ ~row[s][i].sealed
    /\ total[i] < Works
    /\ worker' = [worker EXCEPT ![w] = [busy |-> TRUE, at |-> s, i |-> i, etag |-> row[s][i].etag]]
    /\ UNCHANGED <<graph, row, total, mover, stayer, departed, crashed>>

Work(w) ==
    /\ worker[w].busy
    /\ LET s == worker[w].at
           i == worker[w].i
           fits == row[s][i].there /\ row[s][i].etag = worker[w].etag /\ total[i] < Works
       IN IF fits
          THEN /\ row' = [row EXCEPT ![s][i].val = @ + 1, ![s][i].etag = @ + 1]
               /\ total' = [total EXCEPT ![i] = @ + 1]
          ELSE UNCHANGED <<row, total>>
    /\ worker' = [worker EXCEPT ![w].busy = FALSE]
    /\ UNCHANGED <<graph, mover, stayer, departed, crashed>>

----------------------------------------------------------------------------
(* The command. `here` and `there` are etags of graph rows as this call knows them. *)

To(m, pc) == mover' = [mover EXCEPT ![m].pc = pc]
Again(m) == mover' = [mover EXCEPT ![m] = Idle]

Free(s, d) ==
    \/ graph[d].state = "none"
    \/ graph[d].state = "moved" /\ (graph[d].received \/ graph[d].token = graph[s].arrival)
    \/ graph[d].state = "restoring" /\ (graph[d].arrival \in graph[s].void \/ ~VoidOnly)

(* The first look: where does it stand? A graph that lives may depart, in the same commit. *)
Depart(m, s) ==
    /\ mover[m].pc = "start"
    /\ graph[s].state = "live" /\ Free(s, Other(s))
    /\ departed < Departures
    /\ departed' = departed + 1
    /\ graph' = [graph EXCEPT ![s].state = "moving", ![s].token = departed + 1, ![s].etag = @ + 1]
    /\ mover' = [mover EXCEPT ![m] = [Idle EXCEPT !.pc = "seal", !.from = s, !.token = departed + 1,
                                                  !.here = graph[s].etag + 1]]
    /\ UNCHANGED <<row, total, stayer, worker, crashed>>

GoOn(m, s) ==
    /\ mover[m].pc = "start"
    /\ graph[s].state \in {"moving", "moved"} /\ graph[s].token # 0 /\ ~graph[s].received
    /\ mover' = [mover EXCEPT ![m] = [Idle EXCEPT !.pc = IF graph[s].state = "moving" THEN "seal" ELSE "see",
                                                  !.from = s, !.token = graph[s].token, !.here = graph[s].etag]]
    /\ UNCHANGED <<graph, row, total, stayer, worker, departed, crashed>>

Seal(m) ==
    /\ mover[m].pc = "seal"
    /\ LET s == mover[m].from
           open == {i \in Rows : row[s][i].there /\ ~row[s][i].sealed}
       IN IF open = {} \/ ~Sealing
          THEN /\ To(m, "begin")
               /\ UNCHANGED <<graph, row>>
          ELSE IF graph[s].etag # mover[m].here
          THEN /\ Again(m)
               /\ UNCHANGED <<graph, row>>
          ELSE \E i \in open :
               /\ row' = [row EXCEPT ![s][i].sealed = TRUE, ![s][i].etag = @ + 1]
               /\ graph' = [graph EXCEPT ![s].etag = @ + 1]
               /\ mover' = [mover EXCEPT ![m].here = @ + 1]
    /\ UNCHANGED <<total, stayer, worker, departed, crashed>>

Begin(m) ==
    /\ mover[m].pc = "begin"
    /\ LET s == mover[m].from
           d == Other(s)
           mine == graph[d].arrival = mover[m].token /\ graph[d].state # "none"
       IN IF mine
          THEN /\ mover' = [mover EXCEPT ![m].there = graph[d].etag,
                                         ![m].pc = IF graph[d].state = "restoring" /\ ~graph[d].whole
                                                   THEN "read" ELSE "check"]
               /\ UNCHANGED <<graph, row>>
          ELSE IF Free(s, d)
          THEN /\ graph' = [graph EXCEPT ![d] = [NoGraph EXCEPT !.state = "restoring", !.arrival = mover[m].token,
                                                                !.etag = graph[d].etag + 1]]
               /\ row' = [row EXCEPT ![d] = [i \in Rows |-> NoRow]]
               /\ mover' = [mover EXCEPT ![m].there = graph[d].etag + 1, ![m].pc = "read"]
          ELSE /\ Again(m)
               /\ UNCHANGED <<graph, row>>
    /\ UNCHANGED <<total, stayer, worker, departed, crashed>>

(* The next row is read here, and put there by another call. *)
Read(m) ==
    /\ mover[m].pc = "read"
    /\ LET s == mover[m].from
           d == Other(s)
           i == graph[d].copied + 1
       IN IF i > N
          THEN To(m, "whole") /\ UNCHANGED <<graph, row>>
          ELSE /\ mover' = [mover EXCEPT ![m].pc = "put", ![m].buffer = row[s][i]]
               /\ UNCHANGED <<graph, row>>
    /\ UNCHANGED <<total, stayer, worker, departed, crashed>>

Put(m) ==
    /\ mover[m].pc = "put"
    /\ LET d == Other(mover[m].from)
           i == graph[d].copied + 1
           good == mover[m].buffer.there /\ (mover[m].buffer.sealed \/ ~Sealing)
       IN IF i <= N /\ good /\ (graph[d].etag = mover[m].there \/ ~Fenced)
          THEN /\ row' = [row EXCEPT ![d][i] = [there |-> TRUE, sealed |-> ComeSealed, val |-> mover[m].buffer.val,
                                                etag |-> row[d][i].etag + 1]]
               /\ graph' = [graph EXCEPT ![d].copied = i, ![d].etag = @ + 1]
               /\ mover' = [mover EXCEPT ![m].pc = "read", ![m].there = graph[d].etag + 1, ![m].buffer = NoRow]
          ELSE /\ Again(m)
               /\ UNCHANGED <<graph, row>>
    /\ UNCHANGED <<total, stayer, worker, departed, crashed>>

Whole(m) ==
    /\ mover[m].pc = "whole"
    /\ LET d == Other(mover[m].from)
       IN IF graph[d].etag = mover[m].there
          THEN /\ graph' = [graph EXCEPT ![d].whole = TRUE, ![d].etag = @ + 1]
               /\ To(m, "check")
          ELSE /\ Again(m)
               /\ UNCHANGED graph
    /\ UNCHANGED <<row, total, stayer, worker, departed, crashed>>

Check(m) ==
    /\ mover[m].pc = "check"
    /\ LET d == Other(mover[m].from)
           mine == graph[d].arrival = mover[m].token /\ (graph[d].state # "restoring" \/ graph[d].whole)
       IN IF mine THEN To(m, "confirm") ELSE Again(m)
    /\ UNCHANGED <<graph, row, total, stayer, worker, departed, crashed>>

(* Without the rule: as soon as something of it is there. *)
CheckNothing(m) ==
    /\ ~WholeFirst
    /\ mover[m].pc \in {"read", "put", "whole"}
    /\ To(m, "confirm")
    /\ UNCHANGED <<graph, row, total, stayer, worker, departed, crashed>>

Confirm(m) ==
    /\ mover[m].pc = "confirm"
    /\ LET s == mover[m].from
       IN IF graph[s].state = "moving" /\ (graph[s].token = mover[m].token \/ ~OwnToken)
          THEN graph' = [graph EXCEPT ![s].state = "moved", ![s].etag = @ + 1]
          ELSE UNCHANGED graph
    /\ To(m, "see")
    /\ UNCHANGED <<row, total, stayer, worker, departed, crashed>>

(* The row here is read once more: it is what lets it live there. *)
See(m) ==
    /\ mover[m].pc = "see"
    /\ LET s == mover[m].from
           d == Other(s)
           moved == graph[s].state = "moved" /\ graph[s].token = mover[m].token
       IN IF moved \/ ~MovedFirst
          THEN mover' = [mover EXCEPT ![m].pc = "open", ![m].there = graph[d].etag]
          ELSE Again(m)
    /\ UNCHANGED <<graph, row, total, stayer, worker, departed, crashed>>

SeeNothing(m) ==
    /\ ~MovedFirst
    /\ mover[m].pc = "confirm"
    /\ To(m, "see")
    /\ UNCHANGED <<graph, row, total, stayer, worker, departed, crashed>>

Open(m) ==
    /\ mover[m].pc = "open"
    /\ LET d == Other(mover[m].from)
           closed == {i \in Rows : row[d][i].there /\ row[d][i].sealed}
       IN IF graph[d].arrival # mover[m].token \/ graph[d].state # "restoring"
          THEN To(m, "arrived") /\ UNCHANGED <<graph, row>>
          ELSE IF graph[d].etag # mover[m].there
          THEN Again(m) /\ UNCHANGED <<graph, row>>
          ELSE IF closed = {}
          THEN /\ graph' = [graph EXCEPT ![d].state = "live", ![d].etag = @ + 1]
               /\ To(m, "arrived")
               /\ UNCHANGED row
          ELSE \E i \in closed :
               /\ row' = [row EXCEPT ![d][i].sealed = FALSE, ![d][i].etag = @ + 1]
               /\ graph' = [graph EXCEPT ![d].etag = @ + 1]
               /\ mover' = [mover EXCEPT ![m].there = @ + 1]
    /\ UNCHANGED <<total, stayer, worker, departed, crashed>>

Receive(m) ==
    /\ mover[m].pc = "arrived"
    /\ LET s == mover[m].from
           d == Other(s)
           lives == graph[d].arrival = mover[m].token /\ graph[d].state # "restoring"
       IN IF lives /\ graph[s].state = "moved" /\ graph[s].token = mover[m].token
          THEN graph' = [graph EXCEPT ![s].received = TRUE, ![s].etag = @ + 1]
          ELSE UNCHANGED graph
    /\ Again(m)
    /\ UNCHANGED <<row, total, stayer, worker, departed, crashed>>

(* By the command, or the sweep: under the etag of the graph row, which a later arrival writes. *)
Empty(s) ==
    /\ graph[s].state = "moved" /\ graph[s].received
    /\ \E i \in Rows :
        /\ row[s][i].there
        /\ row' = [row EXCEPT ![s][i].there = FALSE]
        /\ graph' = [graph EXCEPT ![s].etag = @ + 1]
    /\ UNCHANGED <<total, mover, stayer, worker, departed, crashed>>

----------------------------------------------------------------------------
(* A person has it stay. *)

Withdraw(p, s) ==
    /\ stayer[p].pc = "start"
    /\ graph[s].state = "moving"
    /\ LET void == graph[s].void \cup ({graph[s].token} \ {0})
       IN graph' = IF VoidFirst
                   THEN [graph EXCEPT ![s].void = void, ![s].token = 0, ![s].etag = @ + 1]
                   ELSE graph
    /\ stayer' = [stayer EXCEPT ![p].pc = "open", ![p].from = s, ![p].here = graph'[s].etag]
    /\ UNCHANGED <<row, total, mover, worker, departed, crashed>>

OpenAgain(p) ==
    /\ stayer[p].pc = "open"
    /\ LET s == stayer[p].from
           closed == {i \in Rows : row[s][i].there /\ row[s][i].sealed}
           void == graph[s].void \cup ({graph[s].token} \ {0})
       IN IF graph[s].etag # stayer[p].here
          THEN stayer' = [stayer EXCEPT ![p] = Idle] /\ UNCHANGED <<graph, row>>
          ELSE IF closed = {}
          THEN /\ graph' = [graph EXCEPT ![s].state = "live", ![s].void = void, ![s].token = 0, ![s].etag = @ + 1]
               /\ stayer' = [stayer EXCEPT ![p] = Idle]
               /\ UNCHANGED row
          ELSE \E i \in closed :
               /\ row' = [row EXCEPT ![s][i].sealed = FALSE, ![s][i].etag = @ + 1]
               /\ graph' = [graph EXCEPT ![s].etag = IF VoidFirst THEN @ + 1 ELSE @]
               /\ stayer' = [stayer EXCEPT ![p].here = IF VoidFirst THEN @ + 1 ELSE @]
    /\ UNCHANGED <<total, mover, worker, departed, crashed>>

----------------------------------------------------------------------------

Crash ==
    /\ crashed < Crashes
    /\ crashed' = crashed + 1
    /\ \/ \E m \in Movers : mover[m].pc # "start" /\ Again(m) /\ UNCHANGED stayer
       \/ \E p \in Stayers : stayer[p].pc # "start" /\ stayer' = [stayer EXCEPT ![p] = Idle] /\ UNCHANGED mover
    /\ UNCHANGED <<graph, row, total, worker, departed>>

Move(m) ==
    \/ \E s \in Stores : Depart(m, s) \/ GoOn(m, s)
    \/ Seal(m) \/ Begin(m) \/ Read(m) \/ Put(m) \/ Whole(m) \/ Check(m) \/ CheckNothing(m) \/ Confirm(m)
    \/ See(m) \/ SeeNothing(m) \/ Open(m) \/ Receive(m)

Next ==
    \/ \E m \in Movers : Move(m)
    \/ \E p \in Stayers : OpenAgain(p) \/ \E s \in Stores : Withdraw(p, s)
    \/ \E w \in Workers : Work(w) \/ \E s \in Stores, i \in Rows : Look(w, s, i)
    \/ \E s \in Stores : Empty(s)
    \/ Crash

Spec == Init /\ [][Next]_vars

(* Under fairness, whoever says the command again brings it to its end. *)
FairSpec == Spec /\ \A m \in Movers : WF_vars(Move(m))

----------------------------------------------------------------------------

Everything(s) == \A i \in Rows : row[s][i].there /\ row[s][i].val = total[i]

(* It lives in one store at most, and whole. *)
T1 == ~(graph["a"].state = "live" /\ graph["b"].state = "live")
T2 == \A s \in Stores : graph[s].state = "live" => Everything(s)
(* Nothing is ever lost: one of the stores has all that was done. *)
T3 == \E s \in Stores : Everything(s)
(* No row can be decided about in both. *)
T4 == \A i \in Rows : ~\A s \in Stores : row[s][i].there /\ ~row[s][i].sealed

(* It does not stay between two stores. *)
T5 == []<>(graph["a"].state = "live" \/ graph["b"].state = "live")

Bound == \A s \in Stores : graph[s].etag <= 40

(* What must be reached, or the model says nothing. *)
NeverThere == graph["b"].state # "live"
NeverBack == ~(graph["a"].state = "live" /\ graph["b"].state = "moved")
NeverStayed == graph["a"].void = {}
NeverBetween == ~(graph["a"].state = "moved" /\ graph["b"].state = "restoring")
NeverRefused == \A m \in Movers : mover[m].pc = "see" =>
    ~(graph[mover[m].from].state = "moving" /\ graph[mover[m].from].token # mover[m].token)
=============================================================================
