import js from "@eslint/js";

const unused = "^_"; // a name that is not used on purpose

export default [
  {
    files: ["lab/web/**/*.js"],
    rules: {
      ...js.configs.recommended.rules,
      "array-callback-return": "error",
      "eqeqeq": ["error", "always", { null: "ignore" }],
      "no-control-regex": "off",
      "no-duplicate-imports": "error",
      "no-empty": ["error", { allowEmptyCatch: true }],
      "no-self-compare": "error",
      "no-undef": "off", // tsc finds these, and knows the browser's names
      "no-unused-vars": ["error", { argsIgnorePattern: unused, varsIgnorePattern: unused }],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
];
