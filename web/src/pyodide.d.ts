/** Not described by the package: what makes a module of its machine code. */
declare module "pyodide/pyodide.asm.mjs" {
  const createModule: (settings: object) => Promise<object>;
  export default createModule;
}
