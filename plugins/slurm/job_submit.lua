-- Example of Slurm's job_submit.lua for a site with Clearway. Copy it beside slurm.conf, set JobSubmitPlugins=lua,
-- and restart slurmctld. If you have such a script already, call the two functions of `clearway` from yours.
--
--   * A job in an urgent partition or QoS that does not say how long it may wait gets DEFAULT_MAX_DELAY.
--   * The script checks a job's claim about its delay while its user can still read the answer.
--   * No other job can claim a delay, at submission or later. (Clearway's rules decide which jobs are urgent. Owners
--     write Comments themselves, so a rule with `comment = true` alone would make every job urgent that claims it.)
--   * A batch job with --requeue and --signal, as its script or SBATCH_SIGNAL says, is marked: it is asked by that
--     signal, gets that time, and is requeued (docs/howto/signal-and-requeue.md). Slurm's records do not show the signal.
--   * Where CHECKPOINTER is set, every batch job runs under the launcher, so that Clearway can have it saved
--     (docs/howto/transparent-checkpoints.md). Off by default.
--   * Where WAKE_FILE is set, the daemon is told of an urgent job at once (daemon.wake_file). Off by default.
--
-- Written for the Lua of slurmctld (5.1 to 5.4). It never raises an error, because an error here would refuse jobs.

local URGENT_PARTITIONS = { urgent = true }
local URGENT_QOS = { urgent = true }
local DEFAULT_MAX_DELAY = "10m"
local LONGEST_MAX_DELAY_S = 24 * 3600

-- Whether jobs with --signal and --requeue are marked.
local MARK_SIGNALS = true

-- Transparent checkpoints: "dmtcp" or "criu"; nil leaves every job unchanged. LAUNCHER is its path on all nodes.
local CHECKPOINTER = nil
local LAUNCHER = "/usr/local/bin/clearway-run"

-- Checkpoints that nobody asks for, so that a node that fails costs no more than this many seconds: by partition, [""] for
-- the others (docs/howto/node-failures.md). Of several partitions the shortest counts. Without: only when Clearway asks.
local INTERVALS_S = {}

-- The daemon sees an urgent job at once where it can read this file; nil: after its pause of daemon.poll_interval. In a
-- local folder to which only SlurmUser can write: slurmctld would follow a link, and wait for who reads a pipe.
local WAKE_FILE = nil

local UNIT_S = { d = 86400, h = 3600, m = 60, s = 1 }
local TOKEN = "[ \t\n\v\f\r]clearway:([^ \t\n\v\f\r]*)" -- not %s, which differs by slurmctld's locale

local clearway = {}

-- Seconds of "90", "90s", "10m" or "1h30m"; nil for anything else, as for the daemon. Each unit once, the largest first.
function clearway.seconds(text)
   local whole, part = text:match("^([0-9]+)%.?([0-9]*)$")
   if whole ~= nil then
      local readable = #whole <= 9 and #part <= 6 and (part ~= "" or whole == text)
      return readable and tonumber(text) or nil
   end
   local total, rest, last = 0, text, math.huge
   while rest ~= "" do
      local number, unit, more = rest:match("^([0-9]+)([dhms])(.*)$")
      if number == nil or #number > 9 or UNIT_S[unit] >= last then
         return nil
      end
      total, last, rest = total + tonumber(number) * UNIT_S[unit], UNIT_S[unit], more
   end
   if text == "" then
      return nil
   end
   return total
end

-- The value of max_delay in a Comment such as "my run clearway:max_delay=5m,checkpoint=signal"; nil without one.
function clearway.max_delay(comment)
   for token in (" " .. (comment or "")):gmatch(TOKEN) do
      for pair in token:gmatch("[^,]+") do
         local value = pair:match("^max_delay=(.*)$")
         if value ~= nil then
            return value
         end
      end
   end
   return nil
end

-- Whether any of the comma-separated partitions, or the QoS, is urgent.
function clearway.is_urgent(partitions, qos)
   for name in (partitions or ""):gmatch("[^,%s]+") do
      if URGENT_PARTITIONS[name] then
         return true
      end
   end
   return URGENT_QOS[qos or ""] == true
end

-- Why a claimed delay cannot be accepted; nil when it can.
function clearway.objection(comment, urgent)
   local claimed = clearway.max_delay(comment)
   if claimed == nil then
      return nil
   end
   if not urgent then
      return "clearway:max_delay is for urgent jobs: submit to an urgent partition or QoS"
   end
   local seconds = clearway.seconds(claimed)
   if seconds == nil then
      return "clearway:max_delay must be a duration such as 90s, 10m or 1h30m"
   end
   if seconds > LONGEST_MAX_DELAY_S then
      return string.format("clearway:max_delay may be %d hours at most", LONGEST_MAX_DELAY_S / 3600)
   end
   return nil
end

-- What is put in front of a batch script, so that it begins a second time under the launcher. Which folder it may use
-- for its script and its checkpoints, and whether what lies there is the user's own, is for the launcher to judge: it
-- runs the job as it is where it cannot. CLEARWAY_UNDER says that this is the second time; it names the job, because
-- the jobs that a job submits inherit its environment.
local PREAMBLE = [[
if [ "${CLEARWAY_UNDER:-}" != "$SLURM_JOB_ID" ] && [ -x "@LAUNCHER@" ]; then
    export CLEARWAY_UNDER="$SLURM_JOB_ID"
    exec "@LAUNCHER@" --checkpointer @CHECKPOINTER@@INTERVAL@ --app "$SLURM_JOB_NAME" --script "$0" -- "$@"
fi
]]

-- Whether a job says itself whether and how it is saved.
function clearway.speaks_of_checkpoints(comment)
   for token in (" " .. (comment or "")):gmatch(TOKEN) do
      if ("," .. token):find(",checkpoint=", 1, true) then
         return true
      end
   end
   return false
end

-- What stood between quotes, where it is one word. All patterns here take time in proportion to the text: a script can
-- have megabytes, and slurmctld waits.
local function unquoted(text)
   return text:find("[ \t]") and "_" or text
end

-- The value of --signal in the lines that sbatch reads for options; nil without one. Its last one counts.
function clearway.signal_option(script)
   local found, named = nil, false
   for line in script:gmatch("[^\n]+") do
      if line:match("^#SBATCH") then
         local options = line:sub(8):gsub('"([^"]*)"', unquoted):gsub("'([^']*)'", unquoted)
         for word in options:gmatch("[^ \t]+") do
            if word:sub(1, 1) == "#" then
               break
            end
            found = named and word or word:match("^%-%-signal=(.+)$") or found
            named = word == "--signal"
         end
         named = false
      elseif line:match("^[ \t]*[^# \t]") then
         break
      end
   end
   return found
end

local SIGNALS = { ["1"] = "HUP", ["2"] = "INT", ["10"] = "USR1", ["12"] = "USR2", ["15"] = "TERM" }
for _, name in ipairs({ "HUP", "INT", "USR1", "USR2", "TERM" }) do
   SIGNALS[name] = name
end

-- What a --signal such as "B:USR1@120" says of how the job is saved, in Clearway's words; nil where it cannot be used.
function clearway.mark(option)
   if #option > 20 then
      return nil
   end
   local where, rest = option:upper():match("^([BR]+):(.+)$")
   local name, seconds = (rest or option:upper()):match("^([A-Z0-9]+)@?([0-9]*)$")
   name = SIGNALS[(name or ""):gsub("^SIG", "")]
   local grace = seconds == "" and 60 or tonumber(seconds)
   if name == nil or #seconds > 5 or grace < 1 or grace > 65535 then
      return nil
   end
   local to = (where or ""):find("B", 1, true) and "batch" or "steps"
   return string.format("clearway:checkpoint=signal,signal=%s,to=%s,grace=%d", name, to, grace)
end

-- How a job is saved that was submitted with --signal and --requeue; nil where it is not, says so itself, or calls the
-- launcher.
function clearway.marked(job_desc)
   local script = job_desc.script
   if not MARK_SIGNALS or script == nil or job_desc.requeue ~= 1 or script:find("clearway-run", 1, true) then
      return nil
   end
   local option = job_desc.environment and job_desc.environment["SBATCH_SIGNAL"] or clearway.signal_option(script)
   local mark = option and clearway.mark(option)
   local comment = job_desc.comment or ""
   if mark == nil or clearway.speaks_of_checkpoints(comment) or #comment + #mark > 1000 then
      return nil
   end
   return mark
end

-- Whether a line that is no comment names srun: no checkpointer can save its connections to Slurm, and a script that was
-- restored without them stands still for ever. One that is hidden better is found by the launcher.
function clearway.names_srun(script)
   for line in script:gmatch("[^\n]+") do
      if not line:match("^%s*#") and line:find("%f[%w_]srun%f[^%w_]") then
         return true
      end
   end
   return false
end

-- The launcher's option for checkpoints that nobody asks for, in a job that may run in these partitions.
function clearway.interval(partitions)
   local shortest
   for name in (partitions or ""):gmatch("[^,%s]+") do
      shortest = math.min(shortest or math.huge, INTERVALS_S[name] or math.huge)
   end
   if shortest == nil or shortest == math.huge then
      shortest = INTERVALS_S[""]
   end
   return shortest and string.format(" --interval %d", math.floor(shortest)) or ""
end

-- The script under the launcher; nil where it is to stay as it is: not a script of a POSIX shell, one that calls
-- the launcher itself or srun, or none, as for srun and salloc.
function clearway.under_launcher(script, partitions)
   if script == nil or script:find("clearway-run", 1, true) or clearway.names_srun(script) then
      return nil
   end
   local first, rest = script:match("^(#![^\n]*\n)(.*)$")
   local shell = first and (first:match("^#!%s*%S*/env%s+(%S+)") or first:match("^#!%s*%S*/(%S+)"))
   if shell ~= "sh" and shell ~= "bash" and shell ~= "dash" and shell ~= "ksh" and shell ~= "zsh" then
      return nil
   end
   local preamble = PREAMBLE:gsub("@(%u+)@", {
      LAUNCHER = LAUNCHER,
      CHECKPOINTER = CHECKPOINTER,
      INTERVAL = clearway.interval(partitions),
   })
   return first .. preamble .. rest
end

-- The Comment with one word more.
function clearway.with(comment, token)
   return (comment == nil or comment == "") and token or (comment .. " " .. token)
end

function clearway.wake_daemon()
   local file = WAKE_FILE ~= nil and io.open(WAKE_FILE, "w")
   if file then
      file:write(os.time(), "\n")
      file:close()
   end
end

function clearway.submit(job_desc)
   local urgent = clearway.is_urgent(job_desc.partition, job_desc.qos)
   local objection = clearway.objection(job_desc.comment, urgent)
   if objection ~= nil then
      slurm.log_user("%s", objection)
      return slurm.ERROR
   end
   if urgent and clearway.max_delay(job_desc.comment) == nil then
      job_desc.comment = clearway.with(job_desc.comment, "clearway:max_delay=" .. DEFAULT_MAX_DELAY)
   end
   if urgent then
      clearway.wake_daemon()
   else
      local mark = clearway.marked(job_desc)
      if mark ~= nil then
         job_desc.comment = clearway.with(job_desc.comment, mark)
      end
   end
   if CHECKPOINTER ~= nil and not urgent and not clearway.speaks_of_checkpoints(job_desc.comment) then
      local script = clearway.under_launcher(job_desc.script, job_desc.partition)
      if script ~= nil then
         job_desc.script = script
      end
   end
   return slurm.SUCCESS
end

-- Of a change only what is given is set; the rest is in the job's record. Root may do as it likes.
function clearway.modify(job_desc, job_rec, modify_uid)
   if job_desc.comment == nil or modify_uid == 0 then
      return slurm.SUCCESS
   end
   if clearway.max_delay(job_desc.comment) == clearway.max_delay(job_rec.comment) then
      return slurm.SUCCESS -- another key changes: a job tells Clearway of its checkpoints this way
   end
   local urgent = clearway.is_urgent(job_desc.partition or job_rec.partition, job_desc.qos or job_rec.qos)
   local objection = clearway.objection(job_desc.comment, urgent)
   if objection ~= nil then
      slurm.log_user("%s", objection)
      return slurm.ERROR
   end
   return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   return clearway.submit(job_desc)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return clearway.modify(job_desc, job_rec, modify_uid)
end

return slurm.SUCCESS
