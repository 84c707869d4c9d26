------------------------------ MODULE Taskgraph ------------------------------
(***************************************************************************)
(* The protocol of one graph: rows, messages that are only hints, handlers *)
(* and workers that may die at any point.                                  *)
(*                                                                         *)
(* What this module is for: the promises S1-S9 and L1 of README.md, over   *)
(* every interleaving of a few actors.  It says nothing about time, sizes, *)
(* relays, or the stores; README.md lists what is left out, and which      *)
(* function of the package each action stands for.                         *)
(*                                                                         *)
(* Reading and committing are separate steps, as the store gives no        *)
(* snapshot over several rows.  An etag is modelled by what it can tell:   *)
(* `stale` holds the rows that an actor has read and that somebody has     *)
(* written since.  As an etag never returns, "it is still the same" and    *)
(* "not stale" say the same, and no number has to grow.                    *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS
    Tasks,        \* the tasks that were submitted
    NewTasks,     \* the tasks of one extension, {} for none
    Requires,     \* task -> set of tasks
    Reruns,       \* task -> budget for failures of its own
    Retries,      \* budget of every task for lost workers
    InsertOrder,  \* sequence over NewTasks: dependents before what they require
    LinkOrder,    \* sequence over the tasks in Tasks that new ones require
    Whole,        \* the extension is small: a single commit
    Handlers, Workers,
    Faults,       \* how many faults may happen in all, and
    FaultKinds,   \* of which kinds: loss, duplicate, crash, unclear, zombie
    Failures,     \* how many runs may fail, and
    MayFail,      \* of which tasks
    HandReruns,   \* how often a person asks for a rerun
    TornReads     \* rows are read one by one, others write in between

CONSTANTS         \* rules of the protocol; a mutated configuration switches one off
    EtagGuard,    \* a commit fails if a row that it writes has changed since it was read
    RunFence,     \* a result counts only with its run and claim
    ClaimGuard,   \* a worker begins only after its claim was written on top of what it read
    AcceptGuard,  \* an accepted extension is outstanding on the graph row, which must be running
    InsertFirst,  \* an extension inserts its rows before it links to them
    LinkRecheck,  \* linking to a task that has completed counts down at once
    Sweeping      \* the sweep is there

VARIABLES
    rows,      \* key -> row: the one partition of the graph
    messages,  \* the hints under way; a message may be taken by several at once until it is acknowledged
    lapsed,    \* tasks that run, whose lease has ended
    handler,   \* handler -> what it is at
    worker,    \* worker -> what it is at
    faults, failures, hands,  \* budgets left
    claimed,   \* <<task, run>> that have been claimed; to check only
    breach     \* promises that a commit has broken; to check only

vars == <<rows, messages, lapsed, handler, worker, faults, failures, hands, claimed, breach>>

All == Tasks \cup NewTasks
Graph == "graph"
Request == "request"
Keys == All \cup {Graph, Request}
None == "none"
Idle == [pc |-> "idle"]
Missing == [state |-> "missing"]
NoRows == [key \in {} |-> Missing]

(*************************** messages and rows ****************************)

Message(kind, task, run, claim) == [kind |-> kind, task |-> task, run |-> run, claim |-> claim]
Work(task, run) == Message("work", task, run, None)
Add == Message("add", None, 0, None)

\* Who names whom: the dependents of a task within the set it came with.
Among(task) == IF task \in Tasks THEN Tasks ELSE NewTasks
Inside(task) == {other \in Among(task) : task \in Requires[other]}
IsLeaf(task) == Inside(task) = {}
Leaves(set) == {task \in set : IsLeaf(task)}
Linking(task) == {new \in NewTasks : task \in Requires[new]}  \* the new dependents of a task that was there before

TaskRow(task, fulfilled) ==
    LET left == Requires[task] \ fulfilled
    IN  [state |-> IF left = {} THEN "pending" ELSE "unscheduled",
         run |-> 0, claim |-> None, left |-> left,
         dependents |-> Inside(task) \cup (IF IsLeaf(task) THEN {Graph} ELSE {}),
         reruns |-> Reruns[task], retries |-> Retries, manual |-> 0]

Failed(row) == row.state \in {"failed", "exception"}
Completed(task) == rows[task].state = "completed"

Init ==
    /\ rows = [key \in Keys |->
                CASE key = Graph -> [state |-> "running", left |-> Leaves(Tasks), failed |-> 0, extending |-> FALSE]
                  [] key = Request -> [state |-> "absent", cursor |-> 0]
                  [] key \in Tasks -> TaskRow(key, {})
                  [] OTHER -> Missing]
    /\ messages = {Work(task, 0) : task \in {each \in Tasks : Requires[each] = {}}}
    /\ lapsed = {}
    /\ handler = [h \in Handlers |-> Idle]
    /\ worker = [w \in Workers |-> Idle]
    /\ faults = Faults
    /\ failures = Failures
    /\ hands = HandReruns
    /\ claimed = {}
    /\ breach = {}

Fault(kind) == faults > 0 /\ kind \in FaultKinds /\ faults' = faults - 1

(****************************** propagation *******************************)

\* One requirement less, and what follows from that in the same commit.
CountedDown(key, row, name) ==
    IF row.state = "missing" THEN row
    ELSE LET left == row.left \ {name}
         IN  [row EXCEPT !.left = left,
                         !.state = IF left # {} THEN @
                                   ELSE IF key = Graph THEN (IF @ = "running" THEN "finished" ELSE @)
                                   ELSE IF @ = "unscheduled" THEN "pending" ELSE @]

Told(copies, dependents, name) == [key \in dependents |-> CountedDown(key, copies[key], name)]

\* Level-triggered: whoever stands pending is sent, whether this commit made it so or not.
Ready(told) == {Work(key, told[key].run) : key \in {each \in DOMAIN told \ {Graph} : told[each].state = "pending"}}

\* Rows that cannot be true together: a dependent that is named and missing, an end with failed tasks.
Contradict(told) ==
    \/ InsertFirst /\ \E key \in DOMAIN told : told[key].state = "missing"
    \/ Graph \in DOMAIN told /\ told[Graph].state = "finished" /\ told[Graph].failed > 0

Changed(copies, new) == [key \in {each \in DOMAIN new : each \notin DOMAIN copies \/ new[each] # copies[each]} |-> new[key]]

NextRun(row) == [row EXCEPT !.state = "pending", !.run = @ + 1, !.claim = None]

Blocked(graph) == [graph EXCEPT !.failed = @ + 1, !.state = IF @ = "running" THEN "blocked" ELSE @]
Unblocked(graph) ==
    [graph EXCEPT !.failed = @ - 1, !.state = IF graph.failed = 1 /\ @ = "blocked" THEN "running" ELSE @]

(******************************* decisions ********************************)

\* What a commit writes, what is sent after it, and whether the rows contradicted each other.
Decision(write, effects) == [write |-> write, effects |-> effects, error |-> FALSE]
Nothing == Decision(NoRows, {})
Contradiction == [write |-> NoRows, effects |-> {}, error |-> TRUE]

Holds(row, item) == row.state = "running" /\ row.run = item.run /\ row.claim = item.claim
Believed(row, item) == IF RunFence THEN Holds(row, item) ELSE row.state = "running"
Again(row, item, states) == row.state \in states /\ row.run = item.run /\ row.claim = item.claim

\* A result of a run that is over may be the very message whose first handling died before it sent the next run.
Stale(row, item) ==
    IF row.state = "pending" /\ row.run > item.run THEN Decision(NoRows, {Work(item.task, row.run)}) ELSE Nothing

DecideCompleted(item, copies) ==
    LET row == copies[item.task]
        told == Told(copies, row.dependents, item.task)
    IN  IF ~(Believed(row, item) \/ Again(row, item, {"completed"})) THEN Stale(row, item)
        ELSE IF Contradict(told) THEN Contradiction
        ELSE Decision(Changed(copies, (item.task :> [row EXCEPT !.state = "completed"]) @@ told), Ready(told))

Unsuccessfully(item, copies, state) ==
    Decision((item.task :> [copies[item.task] EXCEPT !.state = state]) @@ (Graph :> Blocked(copies[Graph])), {})

DecideFailed(item, copies) ==
    LET row == copies[item.task]
    IN  IF ~Believed(row, item)
        THEN IF Again(row, item, {"failed", "exception"}) THEN Nothing ELSE Stale(row, item)
        ELSE IF row.reruns > 0
        THEN Decision(item.task :> [NextRun(row) EXCEPT !.reruns = @ - 1], {Work(item.task, row.run + 1)})
        ELSE Unsuccessfully(item, copies, "failed")

DecideLeaseLost(item, copies) ==
    LET row == copies[item.task]
    IN  IF ~Holds(row, item) THEN Stale(row, item)
        ELSE IF item.task \notin lapsed THEN Nothing
        ELSE IF row.retries > 0
        THEN Decision(item.task :> [NextRun(row) EXCEPT !.retries = @ - 1], {Work(item.task, row.run + 1)})
        ELSE Unsuccessfully(item, copies, "exception")

DecideRerun(item, copies) ==
    LET row == copies[item.task]
    IN  IF row.run = item.run + 1 /\ row.state = "pending" THEN Decision(NoRows, {Work(item.task, row.run)})
        ELSE IF row.run # item.run \/ ~Failed(row) THEN Nothing
        ELSE IF copies[Graph].state \notin {"running", "blocked"} THEN Nothing
        ELSE IF copies[Graph].failed = 0 THEN Contradiction
        ELSE Decision((item.task :> [NextRun(row) EXCEPT !.manual = @ + 1]) @@ (Graph :> Unblocked(copies[Graph])),
                      {Work(item.task, row.run + 1)})

\* The steps of an extension that does not fit one commit; the cursor counts them.
Steps ==
    LET inserts == [number \in DOMAIN InsertOrder |-> <<"insert", InsertOrder[number]>>]
        links == [number \in DOMAIN LinkOrder |-> <<"link", LinkOrder[number]>>]
    IN  IF InsertFirst THEN inserts \o links ELSE links \o inserts

Step(request) == IF request.cursor < Len(Steps) THEN Steps[request.cursor + 1] ELSE <<"finish", None>>

Linked(row, task) == [row EXCEPT !.dependents = @ \cup Linking(task)]

DecideAccept(copies) ==
    LET graph == copies[Graph]
        guarded == IF AcceptGuard THEN Graph :> [graph EXCEPT !.left = @ \cup Leaves(NewTasks), !.extending = ~Whole] ELSE NoRows
        old == {LinkOrder[number] : number \in DOMAIN LinkOrder}
        fulfilled == IF LinkRecheck THEN {task \in old : copies[task].state = "completed"} ELSE {}
        new == [task \in NewTasks |-> TaskRow(task, fulfilled)]
    IN  IF AcceptGuard /\ graph.state \notin {"running", "blocked"}
        THEN Decision(Request :> [copies[Request] EXCEPT !.state = "refused"], {})
        ELSE IF Whole
        THEN Decision(guarded @@ (Request :> [copies[Request] EXCEPT !.state = "done"])
                      @@ [task \in old |-> Linked(copies[task], task)] @@ new, Ready(new))
        ELSE Decision(guarded @@ (Request :> [copies[Request] EXCEPT !.state = "accepted"]), {})

DecideStep(copies) ==
    LET request == copies[Request]
        step == Step(request)
        task == step[2]
        moved == Request :> [request EXCEPT !.cursor = @ + 1]
        told == IF LinkRecheck /\ InsertFirst /\ copies[task].state = "completed"
                THEN Told(copies, Linking(task), task)
                ELSE NoRows
        \* Only where rows are linked before they are inserted has an insert to look at what they require.
        fulfilled == IF InsertFirst THEN {} ELSE {each \in Requires[task] \cap Tasks : copies[each].state = "completed"}
        new == task :> TaskRow(task, fulfilled)
    IN  CASE step[1] = "insert" -> Decision(moved @@ new, Ready(new))
          [] step[1] = "link" ->
                IF Contradict(told) THEN Contradiction
                ELSE Decision(moved @@ Changed(copies, (task :> Linked(copies[task], task)) @@ told), Ready(told))
          [] OTHER ->
                Decision((Request :> [request EXCEPT !.state = "done"])
                         @@ (IF AcceptGuard THEN Graph :> [copies[Graph] EXCEPT !.extending = FALSE] ELSE NoRows), {})

DecideAdd(copies) ==
    CASE copies[Request].state = "staged" -> DecideAccept(copies)
      [] copies[Request].state = "accepted" -> DecideStep(copies)
      [] OTHER -> Nothing

Decide(item, copies) ==
    CASE item.kind = "completed" -> DecideCompleted(item, copies)
      [] item.kind = "failed" -> DecideFailed(item, copies)
      [] item.kind = "lease-lost" -> DecideLeaseLost(item, copies)
      [] item.kind = "rerun" -> DecideRerun(item, copies)
      [] OTHER -> DecideAdd(copies)

\* The rows without which an item cannot be decided; what is asked for depends on what was read.
NeedsOfStep(copies) ==
    LET step == Step(copies[Request])
    IN  CASE step[1] = "insert" -> IF InsertFirst THEN {} ELSE Requires[step[2]] \cap Tasks
          [] step[1] = "link" ->
                {step[2]} \cup (IF step[2] \in DOMAIN copies /\ copies[step[2]].state = "completed" /\ LinkRecheck /\ InsertFirst
                                THEN Linking(step[2]) ELSE {})
          [] OTHER -> {}

Needs(item, copies) ==
    LET row == copies[item.task]
    IN  CASE item.kind = "completed" ->
                IF Believed(row, item) \/ Again(row, item, {"completed"}) THEN row.dependents ELSE {}
          [] item.kind = "failed" -> IF Believed(row, item) /\ row.reruns = 0 THEN {Graph} ELSE {}
          [] item.kind = "lease-lost" -> IF Holds(row, item) /\ row.retries = 0 THEN {Graph} ELSE {}
          [] item.kind = "rerun" -> IF row.run = item.run /\ Failed(row) THEN {Graph} ELSE {}
          [] OTHER ->
                CASE copies[Request].state = "staged" ->
                        {Graph} \cup (IF Whole THEN {LinkOrder[number] : number \in DOMAIN LinkOrder} ELSE {})
                  [] copies[Request].state = "accepted" -> {Graph} \cup NeedsOfStep(copies)
                  [] OTHER -> {}

(******************************** handlers ********************************)

Own(item) == IF item.kind = "add" THEN Request ELSE item.task

\* A handler that has just read the first row of an item.
Begun(item, current) ==
    [pc |-> "reading", item |-> item, copies |-> Own(item) :> current[Own(item)], stale |-> {}]

Unread(h) == Needs(handler[h].item, handler[h].copies) \ DOMAIN handler[h].copies

\* Others learn by the etags that these rows have been written.
Noticed(h, keys) ==
    IF handler[h].pc = "reading"
    THEN [handler[h] EXCEPT !.stale = @ \cup (keys \cap DOMAIN handler[h].copies)]
    ELSE handler[h]

NoticedBy(w, keys) ==
    IF worker[w].pc = "claiming" /\ worker[w].task \in keys THEN [worker[w] EXCEPT !.stale = TRUE] ELSE worker[w]

\* A message in hand is leased: that somebody else gets it too is a fault.
InHand(message) == \E h \in Handlers : handler[h].pc = "reading" /\ handler[h].item = message

Take(h) ==
    /\ handler[h].pc = "idle"
    /\ \E message \in {each \in messages : each.kind # "work"} :
            /\ IF InHand(message) THEN Fault("duplicate") ELSE faults' = faults
            /\ handler' = [handler EXCEPT ![h] = Begun(message, rows)]
    /\ UNCHANGED <<rows, messages, lapsed, worker, failures, hands, claimed, breach>>

\* The sweep, or a worker to whom the message comes back, gives a run up.
TakeLeaseLost(h, task) ==
    /\ Sweeping
    /\ handler[h].pc = "idle"
    /\ task \in lapsed
    /\ handler' = [handler EXCEPT ![h] = Begun(Message("lease-lost", task, rows[task].run, rows[task].claim), rows)]
    /\ UNCHANGED <<rows, messages, lapsed, worker, faults, failures, hands, claimed, breach>>

Read(h) ==
    /\ handler[h].pc = "reading"
    /\ Unread(h) # {}
    /\ \E keys \in (IF TornReads THEN {{key} : key \in Unread(h)} ELSE {Unread(h)}) :
            handler' = [handler EXCEPT ![h].copies = @ @@ [key \in keys |-> rows[key]]]
    /\ UNCHANGED <<rows, messages, lapsed, worker, faults, failures, hands, claimed, breach>>

Decided(h) == Decide(handler[h].item, handler[h].copies)
CanDecide(h) == handler[h].pc = "reading" /\ Unread(h) = {}

\* An insert is conditional on the absence of its row, everything else on the etag that was read.
Conflict(h) ==
    LET keys == DOMAIN Decided(h).write
    IN  /\ EtagGuard
        /\ \/ keys \cap handler[h].stale # {}
           \/ \E key \in keys \ DOMAIN handler[h].copies : rows[key].state # "missing"

\* Nothing to write: what follows is sent, and the message acknowledged.
Repeat(h) ==
    /\ CanDecide(h)
    /\ ~Decided(h).error
    /\ Decided(h).write = NoRows
    /\ messages' = (messages \ {handler[h].item}) \cup Decided(h).effects
    /\ handler' = [handler EXCEPT ![h] = Idle]
    /\ UNCHANGED <<rows, lapsed, worker, faults, failures, hands, claimed, breach>>

\* Somebody wrote first, or rows read one after the other contradict each other: read again, decide again.
Restart(h) ==
    /\ CanDecide(h)
    /\ Decided(h).error \/ (Decided(h).write # NoRows /\ Conflict(h))
    /\ handler' = [handler EXCEPT ![h] = Begun(handler[h].item, rows)]
    /\ breach' = IF Decided(h).error /\ handler[h].stale = {} THEN breach \cup {"contradiction"} ELSE breach
    /\ UNCHANGED <<rows, messages, lapsed, worker, faults, failures, hands, claimed>>

\* Promises that can only be judged at the commit: who wrote a result.
Broken(item, write) ==
    IF /\ item.kind \in {"completed", "failed", "lease-lost"}
       /\ item.task \in DOMAIN write
       /\ ~Holds(rows[item.task], item)
    THEN {"S4"} ELSE {}

\* All or nothing; then what follows is sent, and the message acknowledged, unless one of these comes in between:
\*   crash      it dies before it sends: what follows is not said, the message comes back
\*   duplicate  it dies, or loses its lease, before it acknowledges: the message comes back
\*   unclear    the answer to the commit is lost: it reads and decides again
\* Sending is no step of its own: a hint that is sent late is one that is received late, which Take allows anyway.
Commit(h) ==
    LET item == handler[h].item
        write == Decided(h).write
        keys == DOMAIN write
        effects == Decided(h).effects
    IN  /\ CanDecide(h)
        /\ ~Decided(h).error
        /\ write # NoRows
        /\ ~Conflict(h)
        /\ rows' = [key \in Keys |-> IF key \in keys THEN write[key] ELSE rows[key]]
        /\ lapsed' = {task \in lapsed : rows'[task].state = "running" /\ rows'[task].run = rows[task].run}
        /\ \E fate \in {"none", "crash", "duplicate", "unclear"} :
            /\ IF fate = "none" THEN faults' = faults ELSE Fault(fate)
            /\ fate = "duplicate" => item \in messages
            /\ LET more == item.kind = "add" /\ rows'[Request].state = "accepted"  \* the next step of the extension
                   goes == fate = "unclear" \/ (fate = "none" /\ more)
               IN  /\ messages' = (IF fate = "none" /\ ~more THEN messages \ {item} ELSE messages)
                                  \cup (IF fate \in {"none", "duplicate"} THEN effects ELSE {})
                   /\ handler' = [each \in Handlers |->
                                    IF each # h THEN Noticed(each, keys)
                                    ELSE IF goes THEN Begun(item, rows') ELSE Idle]
        /\ worker' = [w \in Workers |-> NoticedBy(w, keys)]
        /\ breach' = breach \cup Broken(item, write)
        /\ UNCHANGED <<failures, hands, claimed>>

(******************************** workers *********************************)

InClaim(message) ==
    \E w \in Workers : worker[w].pc = "claiming" /\ worker[w].task = message.task /\ worker[w].run = message.run

\* Reads the row that a message speaks of; a run that cannot be claimed is dropped.
TakeWork(w) ==
    /\ worker[w].pc = "idle"
    /\ \E message \in {each \in messages : each.kind = "work"} :
        LET row == rows[message.task]
        IN  /\ IF InClaim(message) THEN Fault("duplicate") ELSE faults' = faults
            /\ IF row.state = "pending" /\ row.run = message.run
               THEN /\ worker' = [worker EXCEPT ![w] =
                                    [pc |-> "claiming", task |-> message.task, run |-> message.run, stale |-> FALSE]]
                    /\ messages' = messages
               ELSE /\ messages' = messages \ {message}
                    /\ worker' = worker
    /\ UNCHANGED <<rows, lapsed, handler, failures, hands, claimed, breach>>

Claim(w) ==
    LET task == worker[w].task
        run == worker[w].run
    IN  /\ worker[w].pc = "claiming"
        /\ ~worker[w].stale \/ ~ClaimGuard
        /\ rows' = [rows EXCEPT ![task].state = "running", ![task].run = run, ![task].claim = w]
        /\ lapsed' = lapsed \ {task}
        /\ handler' = [h \in Handlers |-> Noticed(h, {task})]
        /\ worker' = [each \in Workers |->
                        IF each = w THEN [pc |-> "running", task |-> task, run |-> run] ELSE NoticedBy(each, {task})]
        /\ claimed' = claimed \cup {<<task, run>>}
        /\ breach' = breach \cup (IF <<task, run>> \in claimed THEN {"S2"} ELSE {})
                            \cup (IF \E each \in Requires[task] : ~Completed(each) THEN {"S1"} ELSE {})
        /\ \/ messages' = messages \ {Work(task, run)} /\ faults' = faults
           \/ messages' = messages /\ Work(task, run) \in messages /\ Fault("duplicate")
        /\ UNCHANGED <<failures, hands>>

\* Somebody else was first; the message is looked at again.
LoseClaim(w) ==
    /\ worker[w].pc = "claiming"
    /\ ClaimGuard
    /\ worker[w].stale
    /\ worker' = [worker EXCEPT ![w] = Idle]
    /\ UNCHANGED <<rows, messages, lapsed, handler, faults, failures, hands, claimed, breach>>

HoldsRun(w, task) ==
    /\ worker[w].pc = "running"
    /\ worker[w].task = task
    /\ Holds(rows[task], Message("completed", task, worker[w].run, w))

\* The run ends, well or not, and its result is sent; one that has lost its lease does not know and does the same.
Report(w) ==
    LET task == worker[w].task
    IN  /\ worker[w].pc = "running"
        /\ \/ /\ messages' = messages \cup {Message("completed", task, worker[w].run, w)}
              /\ failures' = failures
           \/ /\ task \in MayFail
              /\ failures > 0
              /\ messages' = messages \cup {Message("failed", task, worker[w].run, w)}
              /\ failures' = failures - 1
        /\ worker' = [worker EXCEPT ![w] = Idle]
        /\ UNCHANGED <<rows, lapsed, handler, faults, hands, claimed, breach>>

\* A renewal finds that the run has been taken over, and ends it.
Cancel(w) ==
    /\ worker[w].pc = "running"
    /\ ~HoldsRun(w, worker[w].task)
    /\ worker' = [worker EXCEPT ![w] = Idle]
    /\ UNCHANGED <<rows, messages, lapsed, handler, faults, failures, hands, claimed, breach>>

\* A renewal that comes late, and yet in time.
Renew(w) ==
    /\ worker[w].pc = "running"
    /\ worker[w].task \in lapsed
    /\ HoldsRun(w, worker[w].task)
    /\ lapsed' = lapsed \ {worker[w].task}
    /\ handler' = [h \in Handlers |-> Noticed(h, {worker[w].task})]
    /\ UNCHANGED <<rows, messages, worker, faults, failures, hands, claimed, breach>>

CrashWorker(w) ==
    /\ worker[w].pc = "running"
    /\ Fault("crash")
    /\ worker' = [worker EXCEPT ![w] = Idle]
    /\ UNCHANGED <<rows, messages, lapsed, handler, failures, hands, claimed, breach>>

\* Nobody renews this run and no word of it is under way.
Abandoned(task) ==
    /\ \A w \in Workers : ~HoldsRun(w, task)
    /\ \A kind \in {"completed", "failed"} : Message(kind, task, rows[task].run, rows[task].claim) \notin messages

\* Time passes.  That is no write and changes no etag.  Of a run that is alive it is a fault: the zombie.
LeaseEnds(task) ==
    /\ rows[task].state = "running"
    /\ task \notin lapsed
    /\ IF Abandoned(task) THEN faults' = faults ELSE Fault("zombie")
    /\ lapsed' = lapsed \cup {task}
    /\ UNCHANGED <<rows, messages, handler, worker, failures, hands, claimed, breach>>

(*************************** sweep, world, people **************************)

Remind(task) ==
    /\ Sweeping
    /\ rows[task].state = "pending"
    /\ Work(task, rows[task].run) \notin messages
    /\ messages' = messages \cup {Work(task, rows[task].run)}
    /\ UNCHANGED <<rows, lapsed, handler, worker, faults, failures, hands, claimed, breach>>

\* The sweep looks at no graph that has ended.
ResendAdd ==
    /\ Sweeping
    /\ rows[Graph].state # "finished"
    /\ rows[Request].state \in {"staged", "accepted"}
    /\ Add \notin messages
    /\ messages' = messages \cup {Add}
    /\ UNCHANGED <<rows, lapsed, handler, worker, faults, failures, hands, claimed, breach>>

Lose ==
    /\ Fault("loss")
    /\ \E message \in messages : messages' = messages \ {message}
    /\ UNCHANGED <<rows, lapsed, handler, worker, failures, hands, claimed, breach>>

Extend ==
    /\ NewTasks # {}
    /\ rows[Request].state = "absent"
    /\ rows' = [rows EXCEPT ![Request].state = "staged"]
    /\ messages' = messages \cup {Add}
    /\ UNCHANGED <<lapsed, handler, worker, faults, failures, hands, claimed, breach>>

AskRerun(task) ==
    /\ hands > 0
    /\ Failed(rows[task])
    /\ messages' = messages \cup {Message("rerun", task, rows[task].run, None)}
    /\ hands' = hands - 1
    /\ UNCHANGED <<rows, lapsed, handler, worker, faults, failures, claimed, breach>>

HandlerStep(h) ==
    Take(h) \/ (\E task \in All : TakeLeaseLost(h, task)) \/ Read(h) \/ Repeat(h) \/ Restart(h) \/ Commit(h)

WorkerStep(w) == TakeWork(w) \/ Claim(w) \/ LoseClaim(w) \/ Report(w)

Next ==
    \/ \E h \in Handlers : HandlerStep(h)
    \/ \E w \in Workers : WorkerStep(w) \/ Cancel(w) \/ Renew(w) \/ CrashWorker(w)
    \/ \E task \in All : LeaseEnds(task) \/ Remind(task) \/ AskRerun(task)
    \/ ResendAdd \/ Lose \/ Extend

Spec == Init /\ [][Next]_vars

\* Whoever can go on does so; nobody has to fail, to ask, or to extend.
Fairness ==
    /\ \A h \in Handlers : WF_vars(HandlerStep(h))
    /\ \A w \in Workers : WF_vars(WorkerStep(w))
    /\ \A task \in All : WF_vars(LeaseEnds(task) /\ Abandoned(task)) /\ WF_vars(Remind(task))
    /\ WF_vars(ResendAdd)

FairSpec == Spec /\ Fairness

(******************************** promises ********************************)

Existing == {task \in All : rows[task].state # "missing"}
Accepted == Tasks \cup (IF rows[Request].state \in {"accepted", "done"} THEN NewTasks ELSE {})
Open == rows[Request].state = "accepted"
Across(task) == IF task \in NewTasks THEN Requires[task] \cap Tasks ELSE {}  \* its edges to tasks that were there before

TypeOK ==
    /\ \A task \in Existing :
        /\ rows[task].state \in {"unscheduled", "pending", "running", "completed", "failed", "exception"}
        /\ rows[task].left \subseteq Requires[task]
        /\ rows[task].dependents \subseteq All \cup {Graph}
        /\ rows[task].claim \in Workers \cup {None}
    /\ rows[Graph].state \in {"running", "blocked", "finished"}
    /\ rows[Request].state \in {"absent", "staged", "accepted", "done", "refused"}
    /\ rows[Request].cursor \in 0 .. Len(Steps)
    /\ lapsed \subseteq {task \in Existing : rows[task].state = "running"}
    /\ \A h \in Handlers : handler[h].pc = "reading" => handler[h].stale \subseteq DOMAIN handler[h].copies
    /\ faults \in 0 .. Faults

\* Nothing is ready, claimed or ended before all that it requires has completed.
S1 == /\ "S1" \notin breach
      /\ \A task \in Existing : rows[task].state # "unscheduled" => \A each \in Requires[task] : Completed(each)

\* A run is claimed once, and executed by one worker.
S2 == /\ "S2" \notin breach
      /\ \A v, w \in Workers :
            v # w /\ worker[v].pc = "running" /\ worker[w].pc = "running"
            => <<worker[v].task, worker[v].run>> # <<worker[w].task, worker[w].run>>

\* Budgets are spent once each, never overdrawn, and account for every run.
S3 == \A task \in Existing :
        /\ rows[task].reruns \in 0 .. Reruns[task]
        /\ rows[task].retries \in 0 .. Retries
        /\ rows[task].run = (Reruns[task] - rows[task].reruns) + (Retries - rows[task].retries) + rows[task].manual

\* Only the holder of run and claim ends a run.
S4 == "S4" \notin breach

\* Completed and finished are final; failed for good is left by a rerun only; runs grow.
S4Final == [][/\ \A task \in All :
                    /\ rows[task].state = "completed" => rows'[task].state = "completed"
                    /\ Failed(rows[task]) => \/ rows'[task].state = rows[task].state
                                             \/ rows'[task].state = "pending" /\ rows'[task].run = rows[task].run + 1
                    /\ rows[task].state # "missing" => rows'[task].state # "missing" /\ rows'[task].run >= rows[task].run
              /\ rows[Graph].state = "finished" => rows'[Graph].state = "finished"]_rows

\* Finished: every task that was ever accepted has completed.
S6 == rows[Graph].state = "finished" => \A task \in Accepted : Completed(task)

\* Blocked: as long as some task has failed for good, and only then; and none has with budget left.
S7 == /\ rows[Graph].failed = Cardinality({task \in Existing : Failed(rows[task])})
      /\ rows[Graph].state = "blocked" <=> rows[Graph].failed > 0
      /\ \A task \in Existing : /\ rows[task].state = "failed" => rows[task].reruns = 0
                                /\ rows[task].state = "exception" => rows[task].retries = 0

\* Both ends of an edge name each other, and nobody is named who is not there.
S8 == \A task \in Existing :
        LET all == {each \in Accepted : task \in Requires[each]} \cup (IF IsLeaf(task) THEN {Graph} ELSE {})
            across == IF Open /\ task \in Tasks THEN Linking(task) ELSE {}
        IN  /\ rows[task].dependents \ across = all \ across
            /\ rows[task].dependents \subseteq all
            /\ rows[task].dependents \ {Graph} \subseteq Existing

\* What is outstanding on a row is what has not completed; edges of an extension under way may still be counted down.
S9 == /\ \A task \in Existing :
            LET left == {each \in Requires[task] : ~Completed(each)}
                across == IF Open THEN Across(task) ELSE {}
            IN  /\ rows[task].state = "unscheduled" <=> rows[task].left # {}
                /\ rows[task].left \ across = left \ across
                /\ left \subseteq rows[task].left
      /\ rows[Graph].left = {task \in Leaves(Accepted) : ~Completed(task)}

\* Rows that were all read at one moment never contradict each other.
Consistent == "contradiction" \notin breach

\* At rest: nothing can move any more but by a person.
AtRest == \A task \in Existing : \/ rows[task].state \in {"completed", "failed", "exception"}
                                 \/ rows[task].state = "unscheduled" /\ \E each \in Requires[task] : ~Completed(each)

\* A request whose message was lost stays unanswered if the graph has finished meanwhile; one that was accepted never does.
Answered == \/ rows[Request].state \in {"absent", "done", "refused"}
            \/ rows[Request].state = "staged" /\ rows[Graph].state = "finished"

Ended == Answered /\ (rows[Graph].state = "finished" \/ (rows[Graph].state = "blocked" /\ AtRest))

\* Every graph comes to its end, and every request to its answer, and stays there.
L1 == <>[]Ended

\* The same, where nothing can fail for good.
L1Finished == <>[](Ended /\ rows[Graph].state = "finished")

==============================================================================
