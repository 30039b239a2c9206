// A front end of chat_agent.py for Node: it sends one message, shows the answer while it grows, and permits a tool.
// `curl -O http://127.0.0.1:8440/greenroom.js` fetches the client. A page imports it from the gateway.
import { connect } from "./greenroom.js";

const client = await connect(process.env.GREENROOM_URL ?? "ws://127.0.0.1:8440");
const session = "session:bob";
const answer = `${session}/answer`;

const answered = new Promise((resolve) => {
  client.onEvent((event) => {
    if (event.handle !== answer) return;
    if (event.type === "run_progress") show(event.stats.text); // the whole text so far
    if (event.type === "interrupt_opened") permit(event);
    if (event.type === "run_state_changed" && event.to === "succeeded") resolve(event.result);
  });
});

function show(text) {
  if (process.stdout.isTTY) process.stdout.write(`\r${text}`); // in a page: element.textContent = text
}

async function permit(interrupt) {
  console.log("permit", interrupt.data.tool, JSON.stringify(interrupt.data.arguments));
  await client.answer(interrupt.interrupt, true); // in a page: when the user presses the button
}

await client.submit("session", { handle: session, on_conflict: "join" }); // the session may exist already
console.log("sent:", await client.inject(session, "How is the weather?"));
console.log("answer:", await answered);
// a stop button calls: await client.cancel(answer)
await client.cancel(session);
client.close();
