/** The page: reads its address, opens what that names, shows it. */

document.body.textContent = "taskgraph";
