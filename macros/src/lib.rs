//! The attribute [`macro@scoped`] of the crate `ndpool`.

use proc_macro::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Error, Expr, ExprReturn, Ident, ItemFn, Macro, ReturnType, Stmt, Token, Type, parse_macro_input,
};

/// Opens a scope over the body of a function, and returns the function's result from it.
///
/// `#[scoped(s = pool)]` binds `s` to a scope of `pool`, any expression that derefs to a pool
/// (`self.pool` in methods), evaluated when the function is called. What the body ends with, and
/// what each `return` gives, goes through `s.returns(..)`: so a body that yields handles makes a
/// function that yields counted arrays. `?` works as ever; what it returns early is an error and
/// holds no handle. The scope closes on every way out, panics included.
///
/// ```ignore
/// #[ndpool::scoped(s = pool)]
/// fn normalised(pool: &Pool, x: &PoolArray<f64, Ix1>) -> Result<SharedArray<f64, Ix1>, Empty> {
///     let x = s.lift(x);
///     let mean = x.mean().ok_or(Empty)?;
///     Ok((x - mean) / x.std(0.0))
/// }
/// ```
///
/// Not for `async` functions (a scope stays on its thread), `const` functions, or functions that
/// return `impl Trait` (the survivor's type must be named).
#[proc_macro_attribute]
pub fn scoped(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as Arguments);
    let function = parse_macro_input!(item as ItemFn);
    match expand(&arguments, function) {
        Ok(function) => quote!(#function).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// `name = pool`.
struct Arguments {
    name: Ident,
    pool: Expr,
}

impl Parse for Arguments {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let wanted = "expected `name = pool`: a name for the scope, and the pool to open it in";
        let name = input.parse().map_err(|e| Error::new(e.span(), wanted))?;
        let equals: syn::Result<Token![=]> = input.parse();
        equals.map_err(|e| Error::new(e.span(), wanted))?;
        let pool = input
            .parse()
            .map_err(|e: Error| Error::new(e.span(), wanted))?;
        if !input.is_empty() {
            return Err(Error::new(input.span(), wanted));
        }
        Ok(Self { name, pool })
    }
}

fn expand(arguments: &Arguments, mut function: ItemFn) -> syn::Result<ItemFn> {
    refuse(&function)?;
    let Arguments { name, pool } = arguments;
    let mut returns = Returns { name };
    returns.visit_block_mut(&mut function.block);
    let mut statements = core::mem::take(&mut function.block.stmts);
    match statements.last_mut() {
        Some(Stmt::Expr(tail, None)) if yields(tail) => {
            let value = &*tail;
            *tail = syn::parse_quote_spanned!(value.span()=> #name.returns(#value));
        }
        Some(Stmt::Macro(tail)) if tail.semi_token.is_none() && !diverges(&tail.mac) => {
            let value = &tail.mac;
            let wrapped: Expr = syn::parse_quote_spanned!(value.span()=> #name.returns(#value));
            *statements.last_mut().expect("there is a last statement") = Stmt::Expr(wrapped, None);
        }
        _ => {}
    }
    function.block.stmts = syn::parse_quote! {
        let #name = (#pool).open();
        #(#statements)*
    };
    Ok(function)
}

/// Refuses functions that a scope cannot cover.
fn refuse(function: &ItemFn) -> syn::Result<()> {
    let signature = &function.sig;
    if let Some(token) = &signature.asyncness {
        return Err(Error::new(
            token.span(),
            "`scoped` does not cover `async` functions: a scope stays on its thread; open one \
             between two `.await`s instead",
        ));
    }
    if let Some(token) = &signature.constness {
        return Err(Error::new(
            token.span(),
            "`scoped` does not cover `const` functions: a scope takes memory at run time",
        ));
    }
    if let ReturnType::Type(_, returned) = &signature.output {
        let mut search = FindImpl(None);
        search.visit_type_mut(&mut returned.clone());
        if let Some(span) = search.0 {
            return Err(Error::new(
                span,
                "`scoped` does not cover functions that return `impl Trait`: name the type of the \
                 survivor, such as `SharedArray<f64, Ix1>`",
            ));
        }
    }
    Ok(())
}

/// Whether a tail expression can have a value that is not `!`.
fn yields(tail: &Expr) -> bool {
    match tail {
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => false,
        Expr::Macro(call) => !diverges(&call.mac),
        _ => true,
    }
}

fn diverges(call: &Macro) -> bool {
    let name = call.path.segments.last().map(|last| last.ident.to_string());
    let diverging = ["panic", "todo", "unimplemented", "unreachable"];
    name.is_some_and(|name| diverging.contains(&name.as_str()))
}

/// Sends the value of each `return` of this function through the scope.
struct Returns<'a> {
    name: &'a Ident,
}

impl VisitMut for Returns<'_> {
    fn visit_expr_return_mut(&mut self, expression: &mut ExprReturn) {
        visit_mut::visit_expr_return_mut(self, expression);
        let name = self.name;
        if let Some(value) = &mut expression.expr {
            let inner = &*value;
            **value = syn::parse_quote_spanned!(inner.span()=> #name.returns(#inner));
        }
    }

    // A `return` in these is not this function's.
    fn visit_expr_closure_mut(&mut self, _: &mut syn::ExprClosure) {}
    fn visit_expr_async_mut(&mut self, _: &mut syn::ExprAsync) {}
    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
}

/// Looks for `impl Trait` in a type.
struct FindImpl(Option<proc_macro2::Span>);

impl VisitMut for FindImpl {
    fn visit_type_mut(&mut self, found: &mut Type) {
        if let Type::ImplTrait(found) = found {
            self.0 = self.0.or(Some(found.impl_token.span()));
        }
        visit_mut::visit_type_mut(self, found);
    }
}
