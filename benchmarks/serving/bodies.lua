-- wrk script: sends the requests of a file, one after another, and reports as one line of JSON.
-- wrk … -s bodies.lua URL -- FILE THREADS; the file has lines of PATH<tab>BODY, an empty body is a GET.
-- Each thread takes its own part of the file; `repeats` counts requests sent after a part was used up.

local threads = {}

function setup(thread)
  thread:set("number", #threads)
  table.insert(threads, thread)
end

function init(args)
  local total = tonumber(args[2])
  requests, sent, repeats = {}, 0, 0
  local line_number = 0
  for line in io.lines(args[1]) do
    if line_number % total == number then
      local path, body = line:match("^([^\t]*)\t(.*)$")
      if body == "" then
        table.insert(requests, wrk.format("GET", path))
      else
        table.insert(requests, wrk.format("POST", path, { ["Content-Type"] = "application/json" }, body))
      end
    end
    line_number = line_number + 1
  end
end

function request()
  if sent >= #requests then
    repeats = repeats + 1
  end
  sent = sent + 1
  return requests[(sent - 1) % #requests + 1]
end

function done(summary, latency, _)
  local repeated = 0
  for _, thread in ipairs(threads) do
    repeated = repeated + thread:get("repeats")
  end
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "duration_us": %d, "refused": %d, "broken": %d, "p50_us": %d, "p99_us": %d, "max_us": %d, "repeats": %d}\n',
    summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99), latency.max, repeated))
end
